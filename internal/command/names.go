package command

import (
	"slices"
	"strings"
)

// assigners are built-in commands whose arguments name variables that they set.
var assigners = []string{"read", "export", "declare", "typeset", "local", "readonly", "getopts", "let", "mapfile", "readarray", "wait", "printf"}

// assigns judges the variables that a built-in command sets, as an assignment of them would be.
func (c *call) assigns() {
	if c.name == "printf" {
		if name := c.after("-v"); name != "" {
			c.j.variable(name)
		}
		return
	}
	for _, a := range c.args {
		name, value, _ := strings.Cut(a.text, "=")
		if strings.HasPrefix(name, "-") && len(name) > 2 {
			name = name[2:] // "-aNAME"
		}
		c.j.variable(name + "=" + value)
		if c.flag("n") { // a reference to another variable
			c.j.variable(value)
		}
	}
}

// variable judges "NAME=VALUE", "NAME+=VALUE" or "NAME[…]=VALUE".
func (j *judge) variable(text string) {
	name, value, _ := strings.Cut(text, "=")
	name, _, _ = strings.Cut(strings.TrimSuffix(name, "+"), "[")
	j.sets(name, value, false)
}

// evaluated raises for a subscript that is quoted and holds a substitution: where the name of a variable or a number is
// expected, a shell evaluates it all the same.
func (j *judge) evaluated(text string) {
	depth := 0
	for i := range len(text) {
		switch {
		case text[i] == '[':
			depth++
		case text[i] == ']':
			depth = max(0, depth-1)
		case depth > 0 && (text[i] == '`' && strings.Contains(text[i+1:], "`") || strings.HasPrefix(text[i:], "$(") && strings.Contains(text[i:], ")")):
			j.raise(High, "a quoted subscript holds what a shell may evaluate")
			return
		}
	}
}

// optionRules are for programs that only read but for some of their options.
func optionRules() map[string]func(*call) {
	m := map[string]func(*call){}
	add := func(names string, rule func(*call)) {
		for _, n := range strings.Fields(names) {
			m[n] = rule
		}
	}
	add("hash", func(c *call) {
		if c.flag("p") {
			c.high("hash lets a name stand for another program")
		}
	})
	add("file", func(c *call) {
		if c.flag("C", "--compile") {
			c.medium("file writes a compiled table")
		}
	})
	add("pidstat", func(c *call) {
		if c.flag("e") {
			c.high("pidstat runs a command")
		}
	})
	add("dmidecode", func(c *call) { c.output("", "--dump-bin") })
	add("lshw", func(c *call) { c.output("", "-dump") })
	add("hwinfo", func(c *call) { c.output("", "--log", "--save-config") })
	add("atop", func(c *call) { c.output("w") })
	add("blkid", func(c *call) {
		c.output("c", "--cache-file")
		if c.flag("g", "--garbage-collect") {
			c.medium("blkid cleans its cache")
		}
	})
	add("needrestart", func(c *call) {
		if c.after("-r") != "l" && !c.flag("b") {
			c.medium("needrestart may restart services")
		}
	})
	add("sensors", func(c *call) {
		if c.flag("s", "--set") {
			c.medium("sensors sets limits")
		}
	})
	add("pvs vgs lvs pvdisplay vgdisplay lvdisplay pvscan vgscan lvscan", func(c *call) {
		if c.flag("", "--config", "--cache", "--mknodes", "--profile", "--commandprofile") || c.flag("a") && c.name == "pvscan" {
			c.medium("%s may change what is active or known", c.name)
		}
	})
	return m
}

// configured raises for package managers that are given settings: those name programs to run and files to write.
func (c *call) configured() {
	for _, a := range c.args {
		if strings.HasPrefix(a.text, "-o") || strings.HasPrefix(a.text, "-c") {
			c.high("%s is given settings that may run or write anything", c.name)
		}
	}
	if c.flag("", "--option", "--config-file", "--config", "--setopt", "--root", "--installroot", "--define", "--eval", "--rcfile", "--macros", "--load", "--pipe") {
		c.high("%s is given settings that may run or write anything", c.name)
	}
}

// packagers are package managers and their tools.
var packagers = []string{"apt", "apt-get", "aptitude", "apt-cache", "apt-config", "apt-mark", "dnf", "yum", "zypper", "apk", "rpm", "rpmquery"}

// given judges what can be told of a command from its arguments, whatever its own rule says.
func (c *call) given() {
	switch {
	case slices.Contains(assigners, c.name):
		c.assigns()
	case slices.Contains(packagers, c.name):
		c.configured()
		if (c.name == "rpm" || c.name == "rpmquery") && c.flag("DE") {
			c.high("rpm evaluates what it is given")
		}
	case c.name == "ss":
		c.output("D", "--diag")
	}
}
