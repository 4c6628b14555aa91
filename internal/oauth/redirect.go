package oauth

import (
	"errors"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// knownRedirects are those of the clients in common use.
var knownRedirects = []string{
	"https://claude.ai/api/mcp/auth_callback",
	"https://claude.com/api/mcp/auth_callback",
	"https://chatgpt.com/connector/oauth/*",
	"https://chatgpt.com/connector_platform_oauth_redirect",
	"https://vscode.dev/redirect",
	"https://insiders.vscode.dev/redirect",
	"https://www.cursor.com/agents/mcp/oauth/callback",
	"cursor://anysphere.cursor-mcp/oauth/callback",
}

const maxRedirect = 512

// redirect is an address for codes, taken apart. What counts is the text itself; the parts decide nothing that a browser
// could read otherwise, since what could be read in two ways is refused.
type redirect struct {
	text     string
	host     string // for people: without port
	loopback bool   // http on the person's own machine
	web      bool   // https
}

// own are schemes that a browser acts on by itself.
var own = []string{"javascript", "data", "vbscript", "file", "blob", "about", "filesystem", "view-source", "ftp", "ws", "wss", "mailto", "tel", "sms", "intent", "chrome", "resource", "jar"}

func parseRedirect(text string) (redirect, error) {
	if text == "" || len(text) > maxRedirect {
		return redirect{}, errors.New("it is empty or longer than 512 characters")
	}
	for _, c := range []byte(text) {
		// Of the printable characters those are refused that browsers rewrite or RFC 3986 does not have.
		if c <= 0x20 || c >= 0x7f || strings.IndexByte("\\\"<>^`{|}#*", c) >= 0 {
			return redirect{}, errors.New("it has characters that do not belong into an address (a fragment is not possible)")
		}
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme == "" || u.Opaque != "" || u.Host == "" || u.User != nil {
		return redirect{}, errors.New("it is not a whole address of the form scheme://host/path")
	}
	scheme, rest, _ := strings.Cut(text, "://")
	if scheme != u.Scheme || !strings.HasPrefix(rest, u.Host) { // upper case, or anything else that parsing evens out
		return redirect{}, errors.New("write scheme and host in small letters")
	}
	for _, part := range strings.Split(u.Path, "/") {
		if part == "." || part == ".." {
			return redirect{}, errors.New("it has . or .. in its path")
		}
	}
	q, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return redirect{}, errors.New("its query cannot be read")
	}
	for _, name := range []string{"code", "state", "iss", "error", "error_description", "error_uri"} {
		if q.Has(name) {
			return redirect{}, errors.New("its query has a name that the answer uses")
		}
	}
	host := u.Hostname()
	r := redirect{text: text, host: host}
	switch {
	case u.Scheme == "https":
		if !isHostName(host) && !isLoopbackName(host) && !isAddress(host) {
			return redirect{}, errors.New("its host is no name in small letters")
		}
		r.web = true
	case u.Scheme == "http":
		if !isLoopbackName(host) {
			return redirect{}, errors.New("http is for loopback addresses only; use https")
		}
		r.loopback = true
	case slices.Contains(own, u.Scheme) || !strings.ContainsAny(u.Scheme, "abcdefghijklmnopqrstuvwxyz"):
		return redirect{}, errors.New("codes cannot be sent to this scheme")
	default:
		r.host = u.Scheme + "://" + u.Host
	}
	return r, nil
}

func isAddress(host string) bool {
	_, err := netip.ParseAddr(host)
	return err == nil
}

// isLoopbackName knows the three that RFC 8252 and the clients use.
func isLoopbackName(host string) bool {
	return host == "127.0.0.1" || host == "::1" || host == "localhost"
}

// isHostName takes DNS names in small letters whose last label is no number, so that no form of an address passes.
func isHostName(host string) bool {
	return len(host) <= 253 && hostWord.MatchString(host) && !strings.HasPrefix(host, "*.")
}

// sameRedirect is exact, but for the port of a loopback address (RFC 8252).
func sameRedirect(registered string, asked redirect) bool {
	if registered == asked.text {
		return true
	}
	r, err := parseRedirect(registered)
	return err == nil && r.loopback && asked.loopback && withoutPort(registered) == withoutPort(asked.text)
}

func withoutPort(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return text
	}
	port := ":" + u.Port()
	if u.Port() == "" && !strings.HasSuffix(u.Host, ":") {
		return text
	}
	return strings.Replace(text, u.Host, strings.TrimSuffix(u.Host, port), 1)
}

// openRedirect says whether clients that nobody set up may have codes sent there.
func (r rules) openRedirect(asked redirect) bool {
	return asked.loopback || slices.ContainsFunc(r.redirects, func(pattern string) bool {
		start, any := strings.CutSuffix(pattern, "*")
		if !any {
			return pattern == asked.text
		}
		last, ok := strings.CutPrefix(asked.text, start)
		return ok && last != "" && strings.Trim(last, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.~") == "" && strings.Trim(last, ".") != ""
	})
}

// withQuery adds parameters to an address, which keeps its own.
func withQuery(address string, pairs ...string) string {
	var b strings.Builder
	b.WriteString(address)
	sep := "?"
	if strings.Contains(address, "?") {
		sep = "&"
	}
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] == "" {
			continue
		}
		b.WriteString(sep + pairs[i] + "=" + url.QueryEscape(pairs[i+1]))
		sep = "&"
	}
	return b.String()
}
