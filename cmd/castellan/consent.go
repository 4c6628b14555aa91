package main

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"castellan/internal/gate"
	"castellan/internal/seal"
)

// consentFolder lies beside the configuration; a file in it with a plan's id as its name and the plan's digest as its
// text stands for a yes in a dialog, once, for consentLife.
const (
	consentFolder = "consents"
	consentLife   = 900 * time.Second
)

// consent takes consent files. A file that is open to others, old, or about another digest counts for nothing and stays.
func consent(dir string, now gate.Clock, log *slog.Logger) func(p *gate.Plan) bool {
	return func(p *gate.Plan) bool {
		if p.ID != filepath.Base(p.ID) {
			return false
		}
		path := filepath.Join(dir, consentFolder, p.ID)
		text, err := seal.Open(path)
		if err != nil {
			if !errors.Is(err, fs.ErrNotExist) {
				log.Warn("consent file not taken", "plan", p.ID, "error", err)
			}
			return false
		}
		info, err := os.Lstat(path)
		if err != nil {
			return false
		}
		if age := now().Sub(info.ModTime()); age < -time.Minute || age > consentLife || strings.TrimSpace(text.Reveal()) != p.Digest {
			log.Warn("consent file not taken: it is too old, or about another plan", "plan", p.ID)
			return false
		}
		return os.Remove(path) == nil // of several processes one removes it
	}
}
