package main

import (
	"fmt"
	"slices"
	"strings"

	"castellan/internal/policy"
	"castellan/internal/settings"
)

// mildKeys are settings that keep nobody out: where the environment or the store holds a bad value for one, what lies below
// it counts, and the value is named. A bad value of any other key is refused, since nobody can tell what was meant to be safe.
var mildKeys = []string{"policy.plan_ttl", "policy.wait_ttl", "policy.approval_ttl", "policy.taint_for", "notify.window", "notify.quiet", "notify.zone"}

// notTaken stands in the note on such a value.
const notTaken = "the value of the environment is not taken"

// mildFault says what is wrong with the value of a mild key alone; nil for every other key.
func mildFault(s Settings, key string) error {
	if !slices.Contains(mildKeys, key) {
		return nil
	}
	value, err := settings.Get(&s, key)
	if err != nil || string(value) == "null" {
		return err
	}
	var alone Settings
	if err := settings.Put(&alone, key, value); err != nil {
		return err
	}
	if strings.HasPrefix(key, "policy.") {
		_, err = policy.New(policy.Config{Settings: alone.Policy})
		return err
	}
	return alone.Notify.Validate()
}

// forgive takes bad values of mild keys, which came from the environment, back to those of the file, and names them.
func forgive(s *Settings, file Settings, notes []string) ([]string, error) {
	for i, n := range notes {
		key, _, _ := strings.Cut(n, " ")
		fault := mildFault(*s, key)
		if fault == nil {
			continue
		}
		was, err := settings.Get(&file, key)
		if err != nil {
			return nil, err
		}
		below := "the default counts"
		if string(was) != "null" {
			below = "the file's value counts"
		}
		if err := settings.Put(s, key, was); err != nil {
			return nil, err
		}
		notes[i] = fmt.Sprintf("%s: "+notTaken+" (%v): %s", key, fault, below)
	}
	return notes, nil
}
