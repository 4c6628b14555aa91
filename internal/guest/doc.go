// Package guest reaches into nodes and guests: it carries out the commands, files and words that the gate permits, through
// the bridge on a node or the guest agent of a VM. It never decides; Lanes tells the gate what the administrator lets run.
package guest
