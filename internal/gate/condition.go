package gate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// holds reads a condition anew. ok says whether it holds, got what was found instead.
func (v *view) holds(ctx context.Context, target string, c Condition) (ok bool, got string, err error) {
	a, err := v.Read(ctx, target, c.Read)
	return v.told(target, c, a, err)
}

// readings are the answers that conditions of one look share.
type readings map[string]reading

type reading struct {
	answer Answer
	err    error
}

func (m readings) holds(ctx context.Context, v *view, target string, c Condition) (bool, string, error) {
	key := c.Read.Operation
	for _, name := range slices.Sorted(maps.Keys(c.Read.Params)) {
		key += "\x00" + name + "=" + c.Read.Params[name]
	}
	r, had := m[key]
	if !had {
		r.answer, r.err = v.Read(ctx, target, c.Read)
		m[key] = r
	}
	return v.told(target, c, r.answer, r.err)
}

// told is holds by what the condition's read answered.
func (v *view) told(target string, c Condition, a Answer, err error) (bool, string, error) {
	if err != nil {
		e := v.g.readError(err)
		if e.Kind == ErrNotFound {
			if c.Rule == RuleAbsent || c.Rule == RuleDiffers || c.Rule == RuleSame && len(c.Lines) == 0 {
				return true, "", nil
			}
			return false, "it does not exist", nil
		}
		return false, "", e
	}
	if len(a.Missing) > 0 {
		return false, "", Fail(ErrUnavailable, "Try again when it answers.", "the answer is incomplete: %s", strings.Join(a.Missing, "; "))
	}
	if c.Rule == RuleSame {
		lines, err := c.lines(a.Data, v.secretIn(target, c.Read.Operation))
		if err != nil {
			return false, "", err
		}
		diff := c.changed(lines)
		return diff == "", diff, nil
	}
	value, found, err := c.find(a.Data)
	if err != nil {
		return false, "", err
	}
	switch c.Rule {
	case RulePresent:
		return found, "nothing there", nil
	case RuleAbsent:
		return !found, clip(value, 80), nil
	case RuleEquals:
		return found && value == scalarText(c.Value), clip(orText(value, "nothing"), 80), nil
	case RuleDiffers:
		return !found || value != scalarText(c.Value), clip(value, 80), nil
	}
	return false, "", Fail(ErrInternal, "", "condition %q has no rule", c.Name)
}

// find leads to the value: rows first where Where is set, then the pointer. An empty text or null is absent.
func (c Condition) find(data json.RawMessage) (string, bool, error) {
	var v any
	d := json.NewDecoder(strings.NewReader(string(data)))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		return "", false, fmt.Errorf("read answer for %q: %w", c.Name, err)
	}
	if len(c.Where) > 0 || !c.Since.IsZero() {
		list, ok := v.([]any)
		if !ok {
			if v == nil {
				return "", false, nil
			}
			return "", false, errors.New("the answer is no list")
		}
		v = nil
		for _, row := range list {
			m, ok := row.(map[string]any)
			if ok && c.row(m) {
				v = m
				break
			}
		}
		if v == nil {
			return "", false, nil
		}
		if c.Pointer == "" {
			raw, err := json.Marshal(v)
			return string(raw), true, err
		}
	}
	for part := range strings.SplitSeq(strings.TrimPrefix(c.Pointer, "/"), "/") {
		if c.Pointer == "" {
			break
		}
		part = strings.NewReplacer("~1", "/", "~0", "~").Replace(part)
		switch x := v.(type) {
		case map[string]any:
			v = x[part]
		case []any:
			i, err := strconv.Atoi(part)
			if err != nil || i < 0 || i >= len(x) {
				return "", false, nil
			}
			v = x[i]
		default:
			return "", false, nil
		}
	}
	if c.Key != "" {
		text, _ := v.(string)
		if n, ok := v.(json.Number); ok {
			text = n.String()
		}
		part, ok := PropertyValue(text, c.Key)
		return part, ok && part != "", nil
	}
	switch x := v.(type) {
	case nil:
		return "", false, nil
	case string:
		x = strings.TrimRight(x, "\n")
		return x, strings.TrimSpace(x) != "", nil
	case bool:
		if x {
			return "1", true, nil
		}
		return "0", true, nil
	case json.Number:
		return x.String(), true, nil
	}
	raw, err := json.Marshal(v)
	return string(raw), true, err
}

func (c Condition) row(m map[string]any) bool {
	for k, texts := range c.Except {
		if have := fieldText(m[k]); have != "" && slices.Contains(texts, have) {
			return false
		}
	}
	for k, want := range c.Where {
		have, match := fieldText(m[k]), false
		for w := range strings.SplitSeq(want, "|") {
			match = match || have == w
		}
		if !match {
			return false
		}
	}
	if !c.Since.IsZero() {
		n, ok := m["starttime"].(json.Number)
		if !ok {
			return true // a row without a time may be a later one
		}
		at, err := n.Int64()
		return err != nil || at > c.Since.Unix()
	}
	return true
}

// fieldText is the text by which rows are picked: of texts and numbers; others have none.
func fieldText(v any) string {
	switch x := v.(type) {
	case string:
		return x
	case json.Number:
		return x.String()
	}
	return ""
}

// scalarText is the text of a JSON scalar, as conditions compare it.
func scalarText(raw json.RawMessage) string {
	switch string(raw) {
	case "true":
		return "1"
	case "false":
		return "0"
	}
	return strings.TrimRight(plainText(raw), "\n")
}
