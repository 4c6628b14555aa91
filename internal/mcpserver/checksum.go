package mcpserver

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
)

// Checksum is the SHA-256, in hex, of all that clients are told about the tools of the toolset: names, descriptions,
// schemas and hints. Tools that are not listed while their capability is off count too, so switching one on changes
// nothing; another version or another text does.
func (s *Server) Checksum() (string, error) {
	h := sha256.New()
	for _, t := range s.described() {
		b, err := json.Marshal(t)
		if err != nil {
			return "", fmt.Errorf("sum tool %s: %w", t.Name, err)
		}
		var plain any // keys in one order, whatever order a schema was written in
		if err := json.Unmarshal(b, &plain); err != nil {
			return "", fmt.Errorf("sum tool %s: %w", t.Name, err)
		}
		if b, err = json.Marshal(plain); err != nil {
			return "", fmt.Errorf("sum tool %s: %w", t.Name, err)
		}
		h.Write(append(b, '\n'))
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
