// Package channel is castellan's way into the guests whose packages it looks after: one SSH key for each guest, taken by that
// guest only, and fixed words over it. It keeps who was enrolled, when and with which host keys, and believes a guest to be
// the one that was meant by its pinned host key alone, wherever it is found.
//
// What a guest says is hostile text: bounded here, read by package patch.
package channel
