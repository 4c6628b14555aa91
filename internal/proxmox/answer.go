package proxmox

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"mime"
	"net/http"
	"net/url"
	"strings"

	"castellan/internal/gate"
)

// answer takes the data out of a good reply. A reply that is none of the API's answers is explained. Bare text is an
// answer only where text was asked for: "OK" of somebody else must not pass for one.
func (r reply) answer(kind string, text bool) (gate.Answer, *gate.UpstreamError) {
	if r.status < 200 || r.status > 299 {
		return gate.Answer{}, r.failure(kind)
	}
	if r.cut != nil {
		return gate.Answer{}, r.unusable(cutText(r))
	}
	media, _, _ := mime.ParseMediaType(r.header.Get("Content-Type"))
	out := gate.Answer{Address: r.address}
	body := bytes.TrimSpace(r.body)
	switch {
	case len(body) > 0 && body[0] == '{' && media != "text/html":
		siblings, data, err := envelope(body)
		if err != nil {
			return gate.Answer{}, r.unusable(fmt.Sprintf("the answer is not whole JSON: %v", err))
		}
		if data == nil {
			return gate.Answer{}, r.unusable(`the answer is JSON without "data": it does not come from the API`)
		}
		out.Data, out.Siblings = data, siblings
		return out, nil
	case text && media == "text/plain":
		quoted, err := json.Marshal(strings.ToValidUTF8(string(r.body), "\uFFFD"))
		if err != nil {
			return gate.Answer{}, r.unusable("the text of the answer cannot be read")
		}
		out.Data = quoted
		return out, nil
	}
	return gate.Answer{}, r.unusable(r.stranger(media))
}

func cutText(r reply) string {
	if errors.Is(r.cut, errTooLarge) {
		return r.cut.Error() + "; ask for less (filters, a limit, one node or guest)"
	}
	return fmt.Sprintf("the answer broke off after %d bytes", len(r.body))
}

// unusable is a reply with a good status and a body that is no answer.
func (r reply) unusable(text string) *gate.UpstreamError {
	return &gate.UpstreamError{Kind: gate.ErrUnavailable, Delivery: gate.MaybeDone, Status: r.status, Message: text,
		Hint: "Look at what stands between castellan and " + r.address + " (reverse proxy, access service, another program on that port)."}
}

// stranger tells who answered in place of the API, as far as that can be seen.
func (r reply) stranger(media string) string {
	var b strings.Builder
	switch {
	case r.redirect():
		b.WriteString("the server answers with another address")
	case media == "text/html" || r.page():
		b.WriteString("a web page came in place of an answer of the API")
		if title := pageTitle(r.body); title != "" {
			fmt.Fprintf(&b, ", titled %q", title)
		}
	case len(bytes.TrimSpace(r.body)) == 0:
		b.WriteString("the answer is empty")
	case media == "":
		b.WriteString("the answer has no type and is not JSON")
	default:
		fmt.Fprintf(&b, "the answer is of type %s, not JSON", clean(media, 80))
	}
	if at := r.header.Get("Location"); at != "" {
		if u, err := url.Parse(at); err == nil && u.Host != "" {
			fmt.Fprintf(&b, "; it points to %s (redirects are never followed)", clean(u.Scheme+"://"+u.Host, 120))
		} else {
			b.WriteString("; it points elsewhere (redirects are never followed)")
		}
	}
	if s := r.header.Get("Server"); s != "" && !strings.HasPrefix(s, "pve-api-daemon") {
		fmt.Fprintf(&b, "; the server calls itself %q", clean(s, 80))
	}
	return b.String()
}

func pageTitle(body []byte) string {
	text := string(body[:min(len(body), 16<<10)])
	lower := strings.ToLower(text)
	from := strings.Index(lower, "<title")
	if from < 0 {
		return ""
	}
	open := strings.IndexByte(lower[from:], '>')
	if open < 0 {
		return ""
	}
	start := from + open + 1
	end := strings.Index(lower[start:], "</title")
	// Lower-casing may change lengths; then the title is left out.
	if end < 0 || len(lower) != len(text) {
		return ""
	}
	return clean(html.UnescapeString(strings.Join(strings.Fields(text[start:start+end]), " ")), 120)
}

// errorBody is the body of a failed call, where there is one.
type errorBody struct {
	Message string                     `json:"message"`
	Errors  map[string]json.RawMessage `json:"errors"`
}

// words gives what the server said: the message of the body, which is whole, before the reason of the status line,
// which is cut at its first line. Products without a message say it as bare text.
func (r reply) words() (text string, params map[string]string) {
	body := bytes.TrimSpace(r.body)
	media, _, _ := mime.ParseMediaType(r.header.Get("Content-Type"))
	var e errorBody
	switch {
	case len(body) > 0 && body[0] == '{' && json.Unmarshal(body, &e) == nil:
		text = e.Message
		for name, raw := range e.Errors {
			var s string
			if json.Unmarshal(raw, &s) != nil {
				s = string(raw)
			}
			if params == nil {
				params = map[string]string{}
			}
			if len(params) < 50 {
				params[clean(name, 80)] = clean(s, 500)
			}
		}
	case len(body) > 0 && body[0] != '<' && body[0] != '{' && media != "text/html" && len(body) <= 4096:
		text = string(body)
	}
	if text == "" && !r.page() {
		text = r.reason
	}
	if text == "" {
		text = http.StatusText(r.status)
	}
	// Some checks are wrapped: the parameters are then lines of the message.
	if rest, ok := strings.CutPrefix(text, "400 Parameter verification failed."); ok && len(params) == 0 {
		for line := range strings.Lines(rest) {
			if name, what, ok := strings.Cut(strings.TrimSpace(line), ": "); ok && !strings.ContainsAny(name, " \t") {
				if params == nil {
					params = map[string]string{}
				}
				params[clean(name, 80)] = clean(what, 500)
			}
		}
	}
	return clean(text, 2000), params
}

// clean bounds a text from outside and takes out what is not for showing; lines stay.
func clean(text string, limit int) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	text = strings.Map(func(r rune) rune {
		switch {
		case r == '\n':
			return r
		case r < ' ' || r == 0x7f || r >= 0x80 && r <= 0x9f || r == 0x2028 || r == 0x2029 || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069 || r == 0xfeff:
			return ' '
		}
		return r
	}, text)
	text = strings.TrimSpace(text)
	if len(text) > limit {
		text = strings.ToValidUTF8(text[:limit], "") + "…"
	}
	return text
}
