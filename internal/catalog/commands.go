package catalog

import (
	"slices"
	"strings"

	"castellan/internal/command"
	"castellan/internal/gate"
)

// commandRule names a parameter by which a caller chooses what is run.
type commandRule struct {
	products, methods, path, param string
	read                           func(values []string) command.Verdict
}

// commandRules: what the text of a request tells is read; a file that it only names is not, and counts as high.
func commandRules() []commandRule {
	elsewhere := func(what string) func([]string) command.Verdict {
		return func([]string) command.Verdict {
			return command.Verdict{Risk: command.High, Reasons: []string{what}}
		}
	}
	return []commandRule{
		{"pve", "POST", "/nodes/*/qemu/*/agent/exec", "command", argv},
		{"pve", "POST", "/nodes/*/qemu/*/agent/exec", "input-data", fed},
		{"pve", "POST", "/nodes/*/qemu/*/monitor", "command", monitor},
		{"pve", MethodRun, "/nodes/**/command", "command", argv},
		{"pve", MethodRun, "/nodes/**/script", "script", fed},
		{"pve", "POST PUT", "/nodes/*/qemu/**", "args", elsewhere("arguments of the hypervisor, which can load and write any file of the host")},
		{"pve", "POST PUT", "/nodes/*/qemu|lxc/**", "hookscript", elsewhere("a script on the host, whose text is not told here")},
		{"pve", "POST PUT", "/nodes/*/qemu/**", "cicustom", elsewhere("cloud-init files, whose text is not told here, run inside the guest")},
		{"pve", "POST PUT", "/nodes/*/lxc/**", "entrypoint", entrypoint},
		{"pve", "POST PUT", "/nodes/*/vzdump", "script", elsewhere("a script on the host, whose text is not told here")},
		{"pve", "POST PUT", "/cluster/backup/**", "script", elsewhere("a script on the host, whose text is not told here")},
		{"", "POST", "/**/termproxy|vncshell|spiceshell", "cmd", elsewhere("a program on the host, in a terminal")},
		{"", "POST", "/**/termproxy|vncshell|spiceshell", "cmd-opts", elsewhere("options of a program on the host")},
	}
}

// argv is a program with its arguments, run without a shell.
func argv(values []string) command.Verdict { return command.Argv(values) }

// fed is what a program reads: it may be a shell.
func fed(values []string) command.Verdict { return command.Shell(strings.Join(values, "\n")) }

func entrypoint(values []string) command.Verdict { return command.Shell(strings.Join(values, " ")) }

// monitor is a command of QEMU's monitor, which is no shell.
func monitor(values []string) command.Verdict {
	text := strings.Join(values, " ")
	words := strings.Fields(text)
	switch {
	case len(words) == 0:
		return command.Verdict{Risk: command.High, Reasons: []string{"no command is given"}}
	case strings.ContainsAny(text, "\n\r\x00"), strings.Contains(text, "exec:"):
		return command.Verdict{Risk: command.High, Reasons: []string{"it may run a command on the host"}}
	case slices.Contains([]string{"info", "help", "?", "print", "p", "x", "xp"}, words[0]):
		return command.Verdict{}
	case slices.Contains([]string{"stop", "cont", "c", "sendkey", "mouse_move", "balloon", "set_link", "eject"}, words[0]):
		return command.Verdict{Risk: command.Medium, Reasons: []string{"it changes the running guest"}}
	}
	return command.Verdict{Risk: command.High, Reasons: []string{"the hypervisor's monitor reaches files and devices of the host"}}
}

const maxCommandText = 200 // runes of a command that a plan shows

// commands judges what a request would run.
func commands(op *Operation, r gate.Request) []gate.CommandFact {
	var out []gate.CommandFact
	for _, rule := range commandRules() {
		if !(familyRule{products: rule.products, methods: rule.methods, path: rule.path}).matches(op) {
			continue
		}
		for _, p := range r.Params {
			if p.Name != rule.param {
				continue
			}
			var values []string
			known := true
			for _, v := range p.Values {
				known = known && v.Ref == nil && v.Secret == nil
				values = append(values, v.Text)
			}
			fact := gate.CommandFact{Param: p.Name, Text: shortCommand(values)}
			verdict := rule.read(values)
			if !known {
				fact.Text, verdict = "", command.Verdict{Risk: command.High, Reasons: []string{"a part of it is not told before it runs"}}
			}
			fact.Risk, fact.Reasons = gate.CommandRisk(verdict.Risk.String()), verdict.Reasons
			out = append(out, fact)
		}
	}
	return out
}

func shortCommand(values []string) string {
	quoted := make([]string, len(values))
	for i, v := range values {
		v = strings.Join(strings.Fields(gate.Clean(v)), " ")
		if len(values) > 1 && (v == "" || strings.ContainsAny(v, " '\"")) {
			v = "'" + strings.ReplaceAll(v, "'", `'\''`) + "'"
		}
		quoted[i] = v
	}
	text := []rune(strings.Join(quoted, " "))
	if len(text) > maxCommandText {
		return string(text[:maxCommandText]) + "…"
	}
	return string(text)
}
