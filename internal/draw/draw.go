// Package draw writes pictures as text: trees and graphs as SVG, graphs as DOT. What it writes holds no scripts, no links
// and no styles that a page would have to allow; every text in it is escaped for where it stands.
package draw

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Grade says how much something matters; drawings give each a colour and a sign of its own.
type Grade string

// The grades.
const (
	Plain   Grade = ""
	Note    Grade = "note"
	Caution Grade = "caution"
	Danger  Grade = "danger"
)

// look is how a grade is drawn: colours for those who see them, a sign for those who do not.
func (g Grade) look() (fill, line, sign string) {
	switch g {
	case Plain:
		return "#f4f4f2", "#77776f", ""
	case Note:
		return "#eef3fa", "#3b6ea5", "i"
	case Caution:
		return "#fdf3dc", "#9a6700", "!"
	}
	return "#fdeaea", "#b3261e", "!!" // a grade that is not known counts as the worst
}

// class is the grade as a word of ours.
func (g Grade) class() string {
	switch g {
	case Plain:
		return "plain"
	case Note, Caution:
		return string(g)
	}
	return string(Danger)
}

// Clean makes outside text fit to be shown: valid UTF-8, one line, nothing that is invisible or turns the direction of
// writing, at most so many characters.
func Clean(s string, most int) string {
	if most < 1 {
		return ""
	}
	var b strings.Builder
	n := 0
	for _, r := range s {
		switch {
		case n == most-1 && utf8.RuneCountInString(s) > most:
			b.WriteRune('…')
			return b.String()
		case r == '\n' || r == '\t' || r == '\r':
			r = ' '
		case r == utf8.RuneError || !unicode.IsPrint(r) || r == 0x2800 || unicode.In(r, unicode.Variation_Selector, unicode.Other_Default_Ignorable_Code_Point):
			r = '\uFFFD'
		}
		b.WriteRune(r)
		n++
	}
	return b.String()
}

// xml escapes text for XML, in elements and in attributes.
func xml(s string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&#34;", "'", "&#39;").Replace(s)
}

// wide says how many columns a text takes: most scripts of East Asia take two a letter.
func wide(s string) int {
	n := 0
	for _, r := range s {
		n++
		if r >= 0x1100 && (r <= 0x115f || r >= 0x2e80 && r <= 0xa4cf || r >= 0xac00 && r <= 0xd7a3 || r >= 0xf900 && r <= 0xfaff || r >= 0xfe30 && r <= 0xfe6f || r >= 0xff00 && r <= 0xff60 || r >= 0x1f300) {
			n++
		}
	}
	return n
}

// lines breaks text at blanks into lines of so many columns, at most so many lines; longer words are cut.
func lines(text string, columns, most int) []string {
	columns = max(columns, 4)
	var out []string
	line := ""
	put := func() {
		if line != "" {
			out = append(out, line)
		}
		line = ""
	}
	for _, word := range strings.Fields(text) {
		for wide(word) > columns {
			put()
			head, n := "", 0
			for _, r := range word {
				if n += wide(string(r)); n > columns {
					break
				}
				head += string(r)
			}
			if head == "" {
				break
			}
			out = append(out, head)
			word = word[len(head):]
		}
		if line != "" && wide(line)+1+wide(word) > columns {
			put()
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	put()
	if len(out) > most {
		out = out[:most]
		out[most-1] += " …"
	}
	return out
}

const fontFamily = "system-ui,sans-serif"

func open(b *strings.Builder, width, height int, title, words string) {
	fmt.Fprintf(b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" font-family="%s" font-size="12"><title>%s</title>`,
		width, height, width, height, fontFamily, xml(title))
	if words != "" {
		fmt.Fprintf(b, `<desc>%s</desc>`, xml(words))
	}
}
