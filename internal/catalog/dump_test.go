package catalog

import (
	"fmt"
	"os"
	"testing"

	"castellan/internal/catalog/facts"
)

func TestDump(t *testing.T) {
	if os.Getenv("DUMP") == "" {
		t.Skip()
	}
	c, _ := New(Config{Facts: facts.Open()})
	for _, op := range c.All() {
		switch os.Getenv("DUMP") {
		case "secrets":
			if s := op.Secrets(); len(s) > 0 {
				fmt.Println(op.Product, op.ID, s)
			}
		case "fields":
			if s := c.SecretFields(op); len(s) > 0 {
				fmt.Printf("%s %s %q\n", op.Product, op.ID, s)
			}
		}
	}
}
