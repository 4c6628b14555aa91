package catalog

import "testing"

// TestWhatIf: questions for what a deed would bring are taken apart in whatever form they come, and no other question is.
func TestWhatIf(t *testing.T) {
	c := searchCatalog(t)
	for question, want := range map[string]string{
		"what happens when I reboot pve2":                           "reboot pve2",
		"What happens if I reboot pve2?":                            "reboot pve2",
		"what would happen if we rebooted node 3":                   "rebooted node 3",
		"what will happen to my guests once pve1 goes down?":        "shut down pve1",
		"what if I delete vm 101?":                                  "delete vm 101",
		"what about if we remove the storage nas":                   "remove the storage nas",
		"what would rebooting pve2 hit?":                            "rebooting pve2",
		"what would a reboot of pve2 hit":                           "reboot of pve2",
		"what does removing vmbr1 break?":                           "removing vmbr1",
		"what will deleting storage nas do":                         "deleting storage nas",
		"which guests would stopping node 2 affect":                 "stopping node 2",
		"which guests stop if pve3 is rebooted?":                    "reboot pve3",
		"Which VMs go down when I shut down pve1?":                  "shut down pve1",
		"which guests are affected if storage nas is removed":       "remove storage nas",
		"who is affected by deleting pool test?":                    "deleting pool test",
		"what breaks if pve1 dies":                                  "shut down pve1",
		"tell me what breaks when I disable the firewall":           "disable the firewall",
		"what is the impact of removing vmbr1?":                     "removing vmbr1",
		"what's the blast radius of deleting the storage local-lvm": "deleting the storage local-lvm",
		"consequences of rolling back 201":                          "rolling back 201",
		"impact of a reboot of pve2":                                "reboot of pve2",
		"is it safe to reboot pve2?":                                "reboot pve2",
		"would it be safe to upgrade pve1 now":                      "upgrade pve1 now",
		"is rebooting pve2 safe":                                    "rebooting pve2",
		"can I safely delete storage nas?":                          "delete storage nas",
		"how bad is it if pve2 crashes":                             "shut down pve2",
		"how risky is it to move disk scsi0 of 101":                 "move disk scsi0 of 101",
		"do I lose data when I roll 101 back?":                      "roll 101 back",
		"will anything break if we apply the network changes":       "apply the network changes",
		"does any guest stop when I migrate 104":                    "migrate 104",
		"what would it hit to take vmbr0 away":                      "take vmbr0 away",
		"how bad would it be to lose pve2":                          "shut down pve2",
		"if the storage ceph-pool dies, who is affected?":           "remove storage ceph-pool",
		"if I reboot pve2, what happens?":                           "reboot pve2",
		"suppose pve1 fails: which guests are down?":                "shut down pve1",
		"When I destroy container 201, what is lost?":               "destroy container 201",
	} {
		if got, ok := c.WhatIf(question); !ok || got != want {
			t.Errorf("%q: %q %v, not %q", question, got, ok, want)
		}
	}
	for _, question := range []string{"", "?", "reboot pve2", "when does the backup of 101 run", "what happened on pve2 last night?", "what happened when the backup failed", "why did 101 stop when I rebooted pve2",
		"alert me when backups fail", "notify me if a disk fails", "which guests run on pve2", "is everything ok", "is 101 up", "is it up?", "are backups fine", "what can you do here", "what depends on storage nas",
		"which storages are affected by the failed job", "how do I move a VM when it is running", "can I move a VM while it runs", "what does vzdump do", "does the firewall block port 22", "is it possible to restore a file",
		"stop the vm if it uses too much memory", "what is the status of vm 101", "will the certificate expire", "how risky is this", "what if", "is it safe to", "what happens", "what happens when", "what is the impact of memory on a vm",
		"If a VM is down, start it", "list the guests that stop", "what time is it on node pve1", "which snapshots would be pruned"} {
		if got, ok := c.WhatIf(question); ok {
			t.Errorf("%q is taken for a what-if question about %q", question, got)
		}
	}
}

func TestGeneralQuestions(t *testing.T) {
	c := searchCatalog(t)
	for _, question := range []string{"what can you do here", "What can you do here?", "help", "Help!", "hello", "how do I start", "where do I begin", "get started", "what tools do you have?", "who are you", "what is this",
		"what are your capabilities", "list all operations", "which operations are there", "what can I ask you?", "what is castellan", "how does this work", "show me what you can do", "what's possible here", "Was kannst du hier machen?",
		"hilfe", "¿Qué puedes hacer aquí?", "ayuda", "aide"} {
		if !c.General(question) {
			t.Errorf("%q names something", question)
		}
	}
	for _, question := range []string{"", "start", "stop", "delete", "backup", "help me restore a backup", "what can I do with vm 101", "how do I start 101", "start all guests", "what can you do about a full disk", "which nodes are there",
		"is pve2 working", "list guests", "show me the backups", "help with ceph", "wie starte ich eine VM"} {
		if c.General(question) {
			t.Errorf("%q is taken for one that names nothing", question)
		}
	}
}
