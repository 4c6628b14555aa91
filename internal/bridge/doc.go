// Package bridge is the mode of castellan that runs on a Proxmox node. It has settings of its own, which castellan cannot
// change, trusts nothing that castellan says, and answers the frames of package frame: it proves whose node and guest an
// ask is for, judges the command by its own rules, runs it, kills it at its limit and says what was seen.
package bridge
