package facts

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
)

// Sum is the SHA-256 of a product's embedded description, in hex. It needs no decoding.
func (f *Facts) Sum(p Product) (string, error) {
	if _, ok := f.once[p]; !ok {
		return "", fmt.Errorf("sum API facts: unknown product %q", p)
	}
	b, err := files.ReadFile(string(p) + ".json.gz")
	if err != nil {
		return "", fmt.Errorf("sum API facts of %s: %w", p, err)
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:]), nil
}
