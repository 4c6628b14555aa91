package catalog

import (
	"encoding/json"
	"fmt"
	"math/big"
	"strings"

	"castellan/internal/catalog/facts"
)

func boolean(f field, text string) (string, []Problem) {
	switch strings.ToLower(text) {
	case "1", "true", "yes", "on":
		return "1", nil
	case "0", "false", "no", "off":
		return "0", nil
	}
	return "", []Problem{{Param: f.name, Message: f.show(text) + " is neither true nor false", Valid: []string{"true", "false"}}}
}

func (k *checker) integer(f field, s *facts.Schema, text string) (string, []Problem) {
	if !isInteger(text) {
		p := Problem{Param: f.name, Message: f.show(text) + " is not a whole number in plain digits"}
		if r, ok := new(big.Rat).SetString(text); ok && len(text) < 40 && !strings.ContainsAny(text, "/eEpPxX_") && !f.secret {
			p.Nearest = new(big.Int).Quo(r.Num(), r.Denom()).String()
		}
		return "", []Problem{p}
	}
	if s.Format != nil && s.Format.Name != "" {
		if _, probs := k.format(f, s.Format.Name, text); len(probs) > 0 {
			return "", probs
		}
	}
	if len(s.Enum) > 0 {
		return enum(f, s, text)
	}
	return inRange(f, s, text)
}

// isInteger tells whole numbers in ASCII digits without sign plus or leading zeros.
func isInteger(text string) bool {
	digits := strings.TrimPrefix(text, "-")
	return digits != "" && len(digits) <= 30 && strings.Trim(digits, "0123456789") == "" && (digits == "0" && text == "0" || digits[0] != '0')
}

func (k *checker) number(f field, s *facts.Schema, text string) (string, []Problem) {
	whole, fraction, dot := strings.Cut(text, ".")
	if whole == "-0" && dot {
		whole = "0"
	}
	if !isInteger(whole) || dot && (fraction == "" || len(fraction) > 30 || strings.Trim(fraction, "0123456789") != "") {
		return "", f.bad("%s is not a number in plain digits", f.show(text))
	}
	return inRange(f, s, text)
}

func inRange(f field, s *facts.Schema, text string) (string, []Problem) {
	n, ok := new(big.Rat).SetString(text)
	if !ok {
		return "", f.bad("%s is not a number", f.show(text))
	}
	limit := func(l *json.Number) *big.Rat {
		if l == nil {
			return nil
		}
		r, ok := new(big.Rat).SetString(l.String())
		if !ok {
			return nil
		}
		return r
	}
	if low := limit(s.Minimum); low != nil && n.Cmp(low) < 0 {
		return "", []Problem{{Param: f.name, Message: fmt.Sprintf("%s is below the minimum", f.show(text)), Nearest: s.Minimum.String()}}
	}
	if high := limit(s.Maximum); high != nil && n.Cmp(high) > 0 {
		return "", []Problem{{Param: f.name, Message: fmt.Sprintf("%s is above the maximum", f.show(text)), Nearest: s.Maximum.String()}}
	}
	return text, nil
}
