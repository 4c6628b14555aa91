package main

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"castellan/internal/seal"
)

// envFile lies beside the configuration, if anybody wants one; CASTELLAN_ENV_FILE names another. It holds lines NAME=VALUE
// for variables of castellan, belongs to the account, and is closed to others.
const envFile = "castellan.env"

// environment is that of the process with the file's variables below it; notes say which came from the file, and which of
// them the process has too.
func (a *app) environment(dir string) (look func(string) (string, bool), named []string, notes []string, err error) {
	path, asked := a.env("CASTELLAN_ENV_FILE")
	if path == "" {
		path = filepath.Join(dir, envFile)
	}
	text, err := seal.Open(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !asked, errors.Is(err, seal.ErrEmpty):
		return a.env, nil, nil, nil
	case err != nil:
		return nil, nil, nil, fmt.Errorf("read environment file: %w", err)
	}
	values := map[string]string{}
	n := 0
	for line := range strings.Lines(text.Reveal()) {
		n++
		line = strings.TrimPrefix(strings.TrimSpace(line), "export ")
		if line == "" || line[0] == '#' {
			continue
		}
		name, value, ok := strings.Cut(line, "=")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		if !ok || !strings.HasPrefix(name, "CASTELLAN_") || name == "CASTELLAN_ENV_FILE" || name == "CASTELLAN_CONFIG" {
			return nil, nil, nil, fmt.Errorf("read environment file %s, line %d: lines are CASTELLAN_NAME=value, of settings only", path, n)
		}
		if _, twice := values[name]; twice {
			return nil, nil, nil, fmt.Errorf("read environment file %s, line %d: %s stands twice", path, n, name)
		}
		if len(value) > 1 && (value[0] == '"' || value[0] == '\'') && value[len(value)-1] == value[0] {
			value = value[1 : len(value)-1]
		}
		values[name] = value
		named = append(named, name+"="+value)
		if _, set := a.env(name); set {
			notes = append(notes, fmt.Sprintf("%s stands in %s and in the environment of the process, which won", name, path))
		} else {
			notes = append(notes, fmt.Sprintf("%s was loaded from %s", name, path))
		}
	}
	return func(name string) (string, bool) {
		if v, ok := a.env(name); ok {
			return v, true
		}
		v, ok := values[name]
		return v, ok
	}, named, notes, nil
}
