package lab

import (
	"fmt"
	"sort"
	"strings"
	"time"
)

// failure is an error as the API tells it.
type failure struct {
	code   int
	msg    string            // without the final newline
	errors map[string]string // of a 400
	bare   bool              // nothing but the status line
	plain  bool              // the text itself is the body
	delay  time.Duration     // how long the answer takes
}

func (f *failure) Error() string {
	if len(f.errors) == 0 {
		return f.msg
	}
	return f.msg + "\n" + joinErrors(f.errors)
}

func joinErrors(errs map[string]string) string {
	keys := make([]string, 0, len(errs))
	for k := range errs {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	var b strings.Builder
	for _, k := range keys {
		b.WriteString(k + ": " + errs[k] + "\n")
	}
	return b.String()
}

const verificationFailed = "Parameter verification failed."

// die is an error of the method itself.
func die(format string, args ...any) *failure {
	return &failure{code: 500, msg: fmt.Sprintf(format, args...)}
}

// bad refuses one parameter.
func bad(key, format string, args ...any) *failure {
	return &failure{code: 400, msg: verificationFailed, errors: map[string]string{key: fmt.Sprintf(format, args...)}}
}

// denied refuses a caller; what is the text in brackets, or empty.
func denied(what string) *failure {
	if what == "" {
		return &failure{code: 403, msg: "Permission check failed"}
	}
	return &failure{code: 403, msg: "Permission check failed (" + what + ")"}
}

// wrapped is a 400 inside a 500, as configuration sections raise it.
func wrapped(errs map[string]string) *failure {
	return &failure{code: 500, msg: "400 " + verificationFailed + "\n" + strings.TrimSuffix(joinErrors(errs), "\n")}
}

// prefixed puts what was tried before the cause.
func prefixed(what string, err error) error {
	if err == nil {
		return nil
	}
	if f, ok := err.(*failure); ok && f.code == 500 {
		g := *f
		g.msg = what + ": " + f.msg
		return &g
	}
	return err
}

const (
	msgModified = "detected modified configuration - file changed by other user? Try again."
	msgChecksum = "checksum mismatch (file change by other user?)"
)
