package guest

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"castellan/internal/lane"
)

// LaneSettings say what may run where, beside the capabilities of policy: empty lists let nobody run anything but probes. Only
// a person changes them, in the file; they count from the next start. Lists that stand here, outside Targets, are for an
// installation of one Proxmox VE target: elsewhere the numbers, pools and nodes of one site would be taken for another's.
type LaneSettings struct {
	// Commands are the exact commands that may run, each with where.
	Commands []lane.Rule `toml:"commands"`
	// Scripts says where scripts and other code of a caller's choice may run: the API's own ways into a guest too (the agent's
	// exec, the monitor, keys that are sent, cloud-init, hookscripts).
	Scripts lane.Scope `toml:"scripts"`
	// ProbesOff are names of probes that are not to be run, on any target.
	ProbesOff []string `toml:"probes_off"`
	// Files says in which guests files may be read; to be written they must be within scripts as well.
	Files lane.Scope `toml:"files"`
	// Targets say the same for one target each, by its name.
	Targets map[string]TargetLanes `toml:"target"`
}

// TargetLanes say what may run where on one target.
type TargetLanes struct {
	Commands  []lane.Rule `toml:"commands"`
	Scripts   lane.Scope  `toml:"scripts"`
	ProbesOff []string    `toml:"probes_off"` // beside those of all targets
	Files     lane.Scope  `toml:"files"`
}

func (s TargetLanes) lock() lane.Settings {
	return lane.Settings{Commands: s.Commands, Scripts: s.Scripts, ProbesOff: s.ProbesOff}
}

// given names the lists that say where something may run.
func (s TargetLanes) given() []string {
	var out []string
	if len(s.Commands) > 0 {
		out = append(out, "commands")
	}
	if !s.Scripts.Empty() {
		out = append(out, "scripts")
	}
	if !s.Files.Empty() {
		out = append(out, "files")
	}
	return out
}

// validate reads what stands at a key of the configuration.
func (s TargetLanes) validate(key string) (warnings []string, err error) {
	found, err := s.lock().Validate()
	if err != nil {
		return nil, fmt.Errorf("check %s: %w", key, err)
	}
	more, err := (lane.Settings{Scripts: s.Files}).Validate()
	if err != nil {
		return nil, fmt.Errorf("check %s: files: %w", key, err)
	}
	for _, w := range more {
		found = append(found, "files: "+strings.TrimPrefix(w, "scripts: "))
	}
	for _, w := range found {
		warnings = append(warnings, key+": "+w)
	}
	return warnings, nil
}

// Validate reads the settings; warnings are about what is allowed and wider than it may look. targets are the names of the
// targets of Proxmox VE.
func (s LaneSettings) Validate(targets []string) (warnings []string, err error) {
	_, warnings, err = s.perTarget(targets)
	return warnings, err
}

// perTarget gives each target what holds for it.
func (s LaneSettings) perTarget(targets []string) (out map[string]TargetLanes, warnings []string, err error) {
	everywhere := TargetLanes{Commands: s.Commands, Scripts: s.Scripts, ProbesOff: s.ProbesOff, Files: s.Files}
	if warnings, err = everywhere.validate("lanes"); err != nil {
		return nil, nil, err
	}
	out = map[string]TargetLanes{}
	for _, name := range slices.Sorted(maps.Keys(s.Targets)) {
		if !slices.Contains(targets, name) {
			return nil, nil, fmt.Errorf("check lanes: lanes.target.%s: there is no target %q of kind pve; those %s", name, name, are(targets))
		}
		t := s.Targets[name]
		more, err := t.validate("lanes.target." + name)
		if err != nil {
			return nil, nil, err
		}
		warnings = append(warnings, more...)
		t.ProbesOff = slices.Concat(s.ProbesOff, t.ProbesOff)
		out[name] = t
	}
	lists := everywhere.given()
	switch {
	case len(lists) == 0:
	case len(targets) > 1:
		return nil, nil, fmt.Errorf("check lanes: lanes.%s names guests, pools or nodes, and the targets of kind pve %s: guest 101 of one would be taken for guest 101 of the others. Write which is meant: %s",
			strings.Join(lists, ", lanes."), are(targets), written(lists, targets))
	case len(targets) == 1 && len(s.Targets) > 0:
		return nil, nil, fmt.Errorf("check lanes: lanes.%s stands beside [lanes.target.%s]; write all of it in the latter: %s", strings.Join(lists, ", lanes."), targets[0], written(lists, targets))
	}
	for _, name := range targets {
		if _, own := out[name]; own {
			continue
		}
		if len(targets) == 1 {
			out[name] = everywhere
		} else {
			out[name] = TargetLanes{ProbesOff: s.ProbesOff}
		}
	}
	return out, warnings, nil
}

// are says which targets there are.
func are(targets []string) string {
	if len(targets) == 0 {
		return "are none"
	}
	return "are " + strings.Join(targets, ", ")
}

// written shows how the tables of one target's lists begin.
func written(lists, targets []string) string {
	var forms []string
	for _, l := range lists {
		open, shut := "[", "]"
		if l == "commands" {
			open, shut = "[[", "]]"
		}
		forms = append(forms, open+"lanes.target."+targets[0]+"."+l+shut)
	}
	text := strings.Join(forms, " and ")
	if len(targets) > 1 {
		text += ", and the same for " + strings.Join(targets[1:], ", ") + " where it is meant there too"
	}
	return text
}
