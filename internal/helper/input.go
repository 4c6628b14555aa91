package helper

import (
	"bytes"
	"fmt"
	"net"
	"strings"

	"castellan/internal/patch"
)

// maxID bounds the id of a run, in bytes.
const maxID = 80

// Input is what upgrade-security, upgrade-all and repair read: which run it is, whether newer versions of the same packages from
// the same archives will do, the hardware addresses of the guest that is meant (none: it is not compared), and the transaction.
func Input(id string, newer bool, cards []string, t patch.Transaction) ([]byte, error) {
	if err := CheckID(id); err != nil {
		return nil, err
	}
	meant := "-"
	for i, c := range cards {
		if a, err := net.ParseMAC(c); err != nil || len(a) != 6 {
			return nil, fmt.Errorf("write input: %.40q is no hardware address", c)
		}
		if i == 0 {
			meant = ""
		} else {
			meant += ","
		}
		meant += strings.ToLower(c)
	}
	var b bytes.Buffer
	flag := 0
	if newer {
		flag = 1
	}
	fmt.Fprintf(&b, "id %s\nnewer %d\nguest %s\n", id, flag, meant)
	for _, text := range t.Texts() {
		if _, err := patch.ParseChange(text); err != nil {
			return nil, fmt.Errorf("write input: %w", err)
		}
		b.WriteString(text)
		b.WriteByte('\n')
	}
	b.WriteString("end\n")
	return b.Bytes(), nil
}

// CheckID says what is wrong with the id of a run.
func CheckID(id string) error {
	if id == "" || len(id) > maxID || strings.Trim(id, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") != "" || strings.Contains("._-", id[:1]) {
		return fmt.Errorf("write input: %.100q is no id of a run", id)
	}
	return nil
}
