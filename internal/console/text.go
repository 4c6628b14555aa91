package console

import (
	"fmt"
	"html"
	"html/template"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The bounds of what is shown of a text, in runes.
const (
	longestValue = 400
	longestLine  = 3000
	longestSaid  = 4000
	mostLines    = 60
)

// value shows an identifier or a value: what came from guests, agents or Proxmox inside a page of the gate.
func value(s string) template.HTML {
	return template.HTML(`<code class="v">` + string(visible(s, longestValue)) + `</code>`)
}

// line shows one line that the gate made; the values in it are not the gate's.
func line(s string) template.HTML { return visible(s, longestLine) }

// said is a text in lines, for a fenced box. It never grows beyond its bounds, and says when it was cut.
func said(s string) []template.HTML {
	s = strings.ReplaceAll(strings.ReplaceAll(s, "\r\n", "\n"), "\r", "\n")
	s = strings.Trim(s, "\n")
	cut := ""
	if n := utf8.RuneCountInString(s); n > longestSaid {
		s = string([]rune(s)[:longestSaid])
		cut = fmt.Sprintf("%d more characters are not shown", n-longestSaid)
	}
	lines := strings.Split(s, "\n")
	if len(lines) > mostLines {
		cut = strings.TrimPrefix(cut+fmt.Sprintf(", %d more lines are not shown", len(lines)-mostLines), ", ")
		lines = lines[:mostLines]
	}
	out := make([]template.HTML, 0, len(lines)+1)
	for _, l := range lines {
		out = append(out, visible(l, longestSaid))
	}
	if cut != "" {
		out = append(out, mark(cut))
	}
	return out
}

// mark is a remark of ours inside a text; a text that spells it does not get its look.
func mark(s string) template.HTML {
	return template.HTML(`<span class="mark">` + html.EscapeString(s) + `</span>`)
}

// visible escapes a text for the content of an element and makes visible what could mislead: control, invisible and
// direction-changing characters, odd spaces, piles of accents, letters that look like those of another script.
func visible(s string, most int) template.HTML {
	if plain(s) && len(s) <= most {
		return template.HTML(html.EscapeString(s))
	}
	var b strings.Builder
	n, accents, cleared := 0, 0, 0 // up to cleared, the run of letters was looked at
	rest := s
	for rest != "" {
		r, size := utf8.DecodeRuneInString(rest)
		if n++; n > most {
			fmt.Fprintf(&b, `<span class="mark">%d more characters</span>`, utf8.RuneCountInString(rest))
			break
		}
		if unicode.In(r, unicode.Mn, unicode.Me) {
			accents++
		} else {
			accents = 0
		}
		switch {
		case r == utf8.RuneError && size <= 1:
			fmt.Fprintf(&b, `<span class="mark">byte %02x</span>`, rest[0])
		case r == '\n':
			b.WriteString(`<span class="mark">new line</span>`)
		case r == '\t':
			b.WriteString(`<span class="mark">tab</span>`)
		case hidden(r) || accents > 2:
			fmt.Fprintf(&b, `<span class="mark">U+%04X</span>`, r)
		case r < utf8.RuneSelf:
			b.WriteString(html.EscapeString(string(r)))
		default:
			at := len(s) - len(rest)
			word, odd := "", false
			if at >= cleared {
				word, odd = lookalike(s, at)
				cleared = at + len(word)
			}
			if odd {
				b.WriteString(string(mark("look-alike letters:")))
				word = clipRunes(word, most-n+1)
				b.WriteString(`<span class="alike">` + html.EscapeString(word) + `</span>`)
				n += utf8.RuneCountInString(word) - 1
				rest = rest[len(word):]
				continue
			}
			b.WriteRune(r)
		}
		rest = rest[size:]
	}
	return template.HTML(b.String())
}

// plain: nothing to make visible.
func plain(s string) bool {
	for i := range len(s) {
		if s[i] < 0x20 || s[i] > 0x7e {
			return false
		}
	}
	return true
}

// hidden characters have no shape of their own, or change that of their neighbours.
func hidden(r rune) bool {
	switch {
	case r == ' ':
		return false
	case !unicode.IsPrint(r): // controls, formats, separators, private use, unassigned
		return true
	case r == 0x115f, r == 0x1160, r == 0x3164, r == 0xffa0, r == 0x2800, r == 0x034f, r == 0x17b4, r == 0x17b5:
		return true
	case r >= 0x180b && r <= 0x180f, r >= 0xfe00 && r <= 0xfe0f, r >= 0xe0000 && r <= 0xe0fff, r == 0xfffc, r == 0xfffd:
		return true
	}
	return false
}

// lookalike says whether the run of letters that begins at this letter passes for Latin without being it: letters of
// another script that have a Latin twin, mixed with Latin ones or all of them twins; or styled Latin letters.
func lookalike(s string, at int) (string, bool) {
	end, twins, others := at, 0, 0
	styled := false
	for end < len(s) {
		r, size := utf8.DecodeRuneInString(s[end:])
		if !unicode.IsLetter(r) || hidden(r) {
			break
		}
		switch {
		case r >= 0xff21 && r <= 0xff5a, r >= 0x1d400 && r <= 0x1d7ff, r >= 0x13a0 && r <= 0x13ff: // full width, mathematical, Cherokee
			styled = true
		case strings.ContainsRune(twinsOfLatin, r):
			twins++
		case !unicode.Is(unicode.Latin, r):
			others++
		}
		end += size
	}
	latin := false
	for i := at; i > 0; { // the run began earlier with Latin letters
		r, size := utf8.DecodeLastRuneInString(s[:i])
		if !unicode.IsLetter(r) {
			break
		}
		latin = latin || unicode.Is(unicode.Latin, r)
		i -= size
	}
	for _, r := range s[at:end] {
		latin = latin || unicode.Is(unicode.Latin, r)
	}
	return s[at:end], styled || twins > 0 && (latin || others == 0)
}

// Letters of Cyrillic, Greek and Armenian that look like Latin ones.
const twinsOfLatin = "АВЕЗКМНОРСТУХЅІЈҮԌԚԜасеорухѕіјһԁԛԝӏ" + "ΑΒΕΖΗΙΚΜΝΟΡΤΥΧανορτυχικ" + "ՍՏՕօոսցհզ"

func clipRunes(s string, most int) string {
	if most <= 0 {
		return ""
	}
	for i := range s {
		if most == 0 {
			return s[:i]
		}
		most--
	}
	return s
}
