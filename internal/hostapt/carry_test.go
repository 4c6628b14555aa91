//go:build linux

package hostapt

import (
	"strings"
	"testing"
)

const hookText = "VERSION 3\nAPT::Architecture=amd64\nDir::Etc=x y\n\ndemo-old 1.0 all none > - - none **REMOVE**\ndemo-repl 1.0 all none < 1.1 all none /var/cache/x.deb\n" +
	"libnew - - none < 2 amd64 same /var/cache/n.deb\ndemo-repl 1.0 all none < 1.1 all none **CONFIGURE**\nlibnew - - none < 2 amd64 same **CONFIGURE**\n"

func TestHook(t *testing.T) {
	decided := transaction(t, "remove demo-old:all 1.0 - -", "upgrade demo-repl:all 1.0 1.1 D:b", "install libnew:amd64 - 2 D:b")
	moves, err := parseHook(strings.NewReader(hookText))
	if err != nil || len(moves) != 3 {
		t.Fatalf("%+v %v", moves, err)
	}
	if err := admitMoves(decided, moves); err != nil {
		t.Error(err)
	}
	for _, other := range [][]string{
		{"upgrade demo-repl:all 1.0 1.1 D:b", "install libnew:amd64 - 2 D:b"},
		{"remove demo-old:all 1.0 - -", "upgrade demo-repl:all 1.0 1.2 D:b", "install libnew:amd64 - 2 D:b"},
		{"remove demo-old:all 1.0 - -", "upgrade demo-repl:all 1.0 1.1 D:b", "install libnew:amd64 - 2 D:b", "upgrade x:all 1 2 D:b"},
	} {
		if admitMoves(transaction(t, other...), moves) == nil {
			t.Errorf("%v is admitted", other)
		}
	}
	for _, bad := range []string{"", "VERSION 2\n\n", "VERSION 3\n\n", "VERSION 3\n\nx 1\n", "VERSION 3\n\nx 2 all none > 1 all none /x.deb\n"} {
		if _, err := parseHook(strings.NewReader(bad)); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}
