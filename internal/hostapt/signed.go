//go:build linux

package hostapt

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// keyrings are where the makers' own keys lie, by the origin that their archives tell.
var keyrings = map[string][]string{
	"Debian":  {"/usr/share/keyrings/debian-archive-keyring.gpg"},
	"Proxmox": {"/usr/share/keyrings/proxmox-archive-keyring.gpg", "/etc/apt/trusted.gpg.d/proxmox-release-*.gpg"},
}

// verify marks the sources that a key of their maker itself has signed: apt takes an archive by whatever key its entry names, and
// what an archive calls itself is its own word.
func (h *Host) verify(ctx context.Context, sources []source) error {
	text, err := h.text(ctx, time.Minute, "apt-get", "indextargets", "--format", "$(FILENAME)|$(METAKEY)|$(REPO_URI)|$(RELEASE)", "Created-By: Packages")
	if err != nil {
		return err
	}
	bases := map[string]string{} // "URI RELEASE" → its release file, without "_InRelease"
	for line := range strings.Lines(text) {
		f := strings.Split(strings.TrimRight(line, "\r\n"), "|")
		if len(f) != 4 {
			continue
		}
		if at := strings.LastIndex(f[0], "_"+strings.ReplaceAll(f[1], "/", "_")); at > 0 {
			bases[strings.TrimSuffix(f[2], "/")+" "+f[3]] = f[0][:at]
		}
	}
	known := map[[2]string]bool{}
	for i := range sources {
		s := &sources[i]
		base := bases[s.place()]
		if keyrings[s.origin] == nil || base == "" {
			continue
		}
		k := [2]string{s.origin, base}
		if _, asked := known[k]; !asked {
			known[k] = h.signed(ctx, base, keyrings[s.origin])
		}
		s.proved = known[k]
	}
	return nil
}

// signed says whether a release file bears a good signature by a key of one of the keyrings.
func (h *Host) signed(ctx context.Context, base string, rings []string) bool {
	for _, pattern := range rings {
		found, err := filepath.Glob(pattern)
		if err != nil {
			continue
		}
		for _, ring := range found {
			if h.signedBy(ctx, base, ring) {
				return true
			}
		}
	}
	return false
}

func (h *Host) signedBy(ctx context.Context, base, ring string) bool {
	inline := true
	if _, err := os.Stat(base + "_InRelease"); errors.Is(err, os.ErrNotExist) {
		inline = false
	} else if err != nil {
		return false
	}
	if _, err := h.tool("gpgv"); err == nil {
		args := []string{"gpgv", "--keyring", ring, "--status-fd", "1"}
		if inline {
			args = append(args, "--output", "/dev/null", base+"_InRelease")
		} else {
			args = append(args, base+"_Release.gpg", base+"_Release")
		}
		// Its exit code tells of any key that is not known; one good signature is what is asked for.
		r, err := h.run(ctx, 20*time.Second, args...)
		lines := strings.Split(r.out, "\n")
		has := func(word string) bool {
			return slices.ContainsFunc(lines, func(l string) bool { return strings.HasPrefix(l, "[GNUPG:] "+word+" ") })
		}
		return err == nil && has("GOODSIG") && !has("BADSIG")
	}
	args := []string{"sqv", "--keyring", ring} // from Debian 13, where apt has it in place of gpgv
	if inline {
		dir, err := os.MkdirTemp("", "castellan-sqv-")
		if err != nil {
			return false
		}
		defer os.RemoveAll(dir)
		args = append(args, "--cleartext", "--output", filepath.Join(dir, "out"), base+"_InRelease") // it writes over nothing that is there
	} else {
		args = append(args, "--signature-file", base+"_Release.gpg", base+"_Release")
	}
	r, err := h.run(ctx, 20*time.Second, args...)
	return err == nil && r.code == 0
}
