package lane

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"castellan/internal/regex"
)

// Kind of an argument: each has a closed grammar. No value of any of them, but Query, can begin with "-" or hold what a
// shell reads as more than text.
type Kind string

// The kinds.
const (
	Unit    Kind = "unit"    // of systemd: "nginx", "nginx.service", "getty@tty1"
	Path    Kind = "path"    // absolute, without "." and ".." parts, double slashes or globs
	Number  Kind = "number"  // decimal, without sign and leading zeros
	Enum    Kind = "enum"    // one of a few words
	Package Kind = "package" // name of a software package
	Span    Kind = "span"    // of time: "30min", "2h", "7d"; units s, min, h, d, w
	Name    Kind = "name"    // of a container, database or role
	Address Kind = "address" // a host name or IP address
	Device  Kind = "device"  // a disk: "/dev/sda", "/dev/nvme0", "/dev/disk/by-id/…"
	Word    Kind = "word"    // letters, digits and _ @ % + , . -, not "@" first; no "/", ":" or "=", which lead to files, other machines and settings
	Query   Kind = "sql"     // one SQL statement that only reads
)

const (
	maxArg  = 4096        // bytes of one argument
	maxArgs = 256         // arguments of a command
	maxArgv = 64 << 10    // bytes of all arguments
	maxSQL  = 32 << 10    // bytes of a query
	maxPath = 1024        // bytes of a path
	maxSpan = 366 * 86400 // seconds
)

var grammars = map[Kind]*regex.Lazy{
	Unit:    &regex.Lazy{Expr: `^[A-Za-z0-9_][A-Za-z0-9_.@:-]{0,254}$`},
	Path:    &regex.Lazy{Expr: `^/[A-Za-z0-9_@%+=:,./ ~-]*$`},
	Number:  &regex.Lazy{Expr: `^(0|[1-9][0-9]{0,17})$`},
	Package: &regex.Lazy{Expr: `^[A-Za-z0-9][A-Za-z0-9+._:~-]{0,199}$`},
	Span:    &regex.Lazy{Expr: `^([1-9][0-9]{0,6})(s|min|h|d|w)$`},
	Name:    &regex.Lazy{Expr: `^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$`},
	Address: &regex.Lazy{Expr: `^[A-Za-z0-9_:][A-Za-z0-9_.:-]{0,252}$`},
	Device:  &regex.Lazy{Expr: `^/dev/(sd[a-z]{1,3}|hd[a-z]|vd[a-z]{1,2}|nvme[0-9]{1,3}(n[0-9]{1,3})?|disk/by-id/[A-Za-z0-9][A-Za-z0-9_.:+-]{0,199})$`},
	Word:    &regex.Lazy{Expr: `^[A-Za-z0-9_%+,.][A-Za-z0-9_@%+,.-]{0,254}$`},
}

// Arg is one typed argument.
type Arg struct {
	Name     string
	Kind     Kind
	Summary  string
	Default  string   // taken where the argument is not given; empty: it is left out
	Required bool     //
	Min, Max int64    // of a Number
	Enum     []string // of an Enum
	Under    string   // of a Path: it is this folder or lies below
}

// Check says why a value is not one of this argument.
func (a Arg) Check(value string) error {
	if err := a.check(value); err != nil {
		return fmt.Errorf("argument %s=%s: %w", a.Name, show(value), err)
	}
	return nil
}

func (a Arg) check(value string) error {
	if value == "" {
		return errors.New("it is empty")
	}
	if a.Kind == Query {
		return readsOnly(value)
	}
	if strings.HasPrefix(value, "-") {
		return errors.New("it begins with \"-\", as options do")
	}
	if err := clean(value); err != nil {
		return err
	}
	if a.Kind == Enum {
		if !slices.Contains(a.Enum, value) {
			return fmt.Errorf("it is none of %s", strings.Join(a.Enum, ", "))
		}
		return nil
	}
	grammar := grammars[a.Kind]
	if grammar == nil {
		return fmt.Errorf("its kind %q is not known", a.Kind)
	}
	if !grammar.MatchString(value) {
		return fmt.Errorf("it is no %s (%s)", a.Kind, kindTells[a.Kind])
	}
	switch a.Kind {
	case Path:
		return a.checkPath(value)
	case Number:
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil || n < a.Min || a.Max > 0 && n > a.Max {
			return fmt.Errorf("it is not within %d to %d", a.Min, a.Max)
		}
	case Word:
		if strings.Trim(value, ".") == "" {
			return errors.New("it leads to another folder")
		}
	case Span:
		if n, err := seconds(value); err != nil || n > maxSpan {
			return errors.New("it is longer than 366 days")
		}
	}
	return nil
}

var kindTells = map[Kind]string{
	Unit: "letters, digits and _ . @ : -", Path: "absolute, of letters, digits, blanks and _ @ % + = : , . / ~ -", Number: "plain digits, no sign, no leading zero", Package: "letters, digits and + . _ : ~ -",
	Span: "such as 30min, 2h or 7d", Name: "letters, digits and _ . -", Address: "a host name or address", Device: "such as /dev/sda, /dev/nvme0 or /dev/disk/by-id/…", Word: "letters, digits and _ @ % + , . -",
}

func (a Arg) checkPath(value string) error {
	if len(value) > maxPath {
		return errors.New("the path is too long")
	}
	if value != "/" {
		for part := range strings.SplitSeq(value[1:], "/") {
			switch {
			case part == "":
				return errors.New("a part of the path is empty (a double or last slash)")
			case part == "." || part == "..":
				return errors.New("the path holds \".\" or \"..\"")
			case strings.HasPrefix(part, " ") || strings.HasSuffix(part, " "):
				return errors.New("a part of the path begins or ends with a blank")
			}
		}
	}
	if a.Under != "" && a.Under != "/" && value != a.Under && !strings.HasPrefix(value, a.Under+"/") {
		return fmt.Errorf("it is not below %s", a.Under)
	}
	return nil
}

// seconds of a Span.
func seconds(span string) (int64, error) {
	part := grammars[Span].FindStringSubmatch(span)
	if part == nil {
		return 0, errors.New("it is no span of time")
	}
	n, err := strconv.ParseInt(part[1], 10, 64)
	return n * map[string]int64{"s": 1, "min": 60, "h": 3600, "d": 86400, "w": 7 * 86400}[part[2]], err
}

// metacharacters are what a shell reads as more than text.
const metacharacters = ";|&$()`<>'\"\\"

// clean says why a text may not be an argument of any command: without a shell it would be harmless, and nothing relies on
// there being none.
func clean(s string) error {
	if len(s) > maxArg {
		return fmt.Errorf("it is longer than %d bytes", maxArg)
	}
	if !utf8.ValidString(s) {
		return errors.New("it is no valid UTF-8")
	}
	for _, r := range s {
		switch {
		case r == 0:
			return errors.New("it holds a NUL")
		case r == '\n' || r == '\r':
			return errors.New("it holds a line break")
		case r < 0x20 || r == 0x7f:
			return fmt.Errorf("it holds the control character U+%04X", r)
		case r > 0x7e && !unicode.IsGraphic(r):
			return fmt.Errorf("it holds the invisible character U+%04X", r)
		case r > 0x7e:
			return fmt.Errorf("it holds U+%04X, which is not ASCII and may look like another letter", r)
		case strings.ContainsRune(metacharacters, r):
			return fmt.Errorf("it holds %q, which shells read as more than text", string(r))
		}
	}
	return nil
}

// show is a text of others as a message quotes it.
func show(s string) string {
	if len(s) > 60 {
		s = strings.ToValidUTF8(s[:60], "?") + "…"
	}
	return strconv.QuoteToASCII(s)
}
