package lab

import (
	"fmt"
	"sort"
	"strings"
)

// tagStyle is a word of the style of tags, as text.
func (s *state) tagStyle(key string) string {
	style, _ := s.options["tag-style"].(M)
	if style[key] == nil {
		return ""
	}
	return fmt.Sprint(style[key])
}

// uniqueTags is the form in which a guest's tags are kept.
func (s *state) uniqueTags(v string) string {
	exact := s.tagStyle("case-sensitive") == "1"
	seen := map[string]bool{}
	var out []string
	for _, t := range splitList(v) {
		if !exact {
			t = strings.ToLower(t)
		}
		if !seen[t] {
			seen[t] = true
			out = append(out, t)
		}
	}
	if s.tagStyle("ordering") != "config" {
		sort.Strings(out)
	}
	if len(out) == 0 {
		return " "
	}
	return strings.Join(out, ";")
}

// allowedTags are the tags that the caller may give and take, and whether others besides. Tags are compared as they are typed.
func (c *call) allowedTags() (allowed, registered map[string]bool, free bool) {
	allowed, registered = map[string]bool{}, map[string]bool{}
	list, _ := c.s.options["registered-tags"].([]string)
	for _, t := range list {
		registered[t] = true
	}
	access, _ := c.s.options["user-tag-access"].(M)
	others := "free"
	if access["user-allow"] != nil {
		others = fmt.Sprint(access["user-allow"])
	}
	privileged := c.can("/", "Sys.Modify")
	if others != "none" || privileged {
		more, _ := access["user-allow-list"].([]string)
		for _, t := range more {
			allowed[t] = true
		}
	}
	if others == "free" || others == "existing" || privileged {
		for id, g := range c.s.guests {
			if !c.can(fmt.Sprintf("/vms/%d", id), "VM.Audit") {
				continue
			}
			for _, t := range splitList(g.conf["tags"]) {
				allowed[t] = true
			}
		}
	}
	for t := range registered {
		if privileged {
			allowed[t] = true
		} else {
			delete(allowed, t)
		}
	}
	return allowed, registered, others == "free"
}

// mayTag refuses a change of tags that the site keeps for who may change it. after is what was typed.
func (c *call) mayTag(before, after string) error {
	if c.can("/", "Sys.Modify") {
		return nil
	}
	allowed, registered, free := c.allowedTags()
	count := map[string]int{}
	for _, t := range splitList(after) {
		count[t]++
	}
	for _, t := range splitList(before) {
		count[t]--
	}
	for _, t := range sortedKeys(count) {
		if count[t] != 0 && (!allowed[t] && !free || registered[t]) {
			return denied("/, Sys.Modify for modifying tag '" + t + "'")
		}
	}
	return nil
}
