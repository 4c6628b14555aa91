package console

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"castellan/internal/gate"
)

// read makes a call of the person's own and fills out with its answer.
func (c *Console) read(v *visit, operation string, args map[string]any, out any) error {
	raw, err := json.Marshal(args)
	if err != nil {
		return fmt.Errorf("ask %s: %w", operation, err)
	}
	ctx, cancel := context.WithTimeout(v.ctx, 20*time.Second)
	defer cancel()
	o, err := c.c.Gate.Do(ctx, gate.Call{Operation: operation, Args: raw, Principal: v.who}, nil)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(o.Answer, out); err != nil {
		return fmt.Errorf("read the answer of %s: %w", operation, err)
	}
	return nil
}

type settingsPage struct {
	Settings []settingLine
	Notes    []string
	Problem  string
	Hint     string
	Proof    string
	Edits    bool
	Key      string
}

type settingLine struct {
	Key    string          `json:"key"`
	Raw    json.RawMessage `json:"value"`
	Set    bool            `json:"set"`
	Source string          `json:"source"`
	By     string          `json:"by"`
	At     time.Time       `json:"at"`
	Person bool            `json:"person"` // a person may change it here
	Value  string          `json:"-"`
	Input  string          `json:"-"` // the value as a field may hold it: nothing in it hides
}

func (c *Console) drawSettings(v *visit, status int, p settingsPage) {
	var got struct {
		Settings []settingLine `json:"settings"`
		Notes    []string      `json:"notes"`
	}
	if err := c.read(v, "get_settings", map[string]any{"all": true}, &got); err != nil {
		c.fail(v, err)
		return
	}
	for _, l := range got.Settings {
		if string(l.Raw) != "null" {
			l.Value = strings.Join(strings.Fields(string(l.Raw)), " ")
			if !strings.ContainsFunc(l.Value, hidden) {
				l.Input = l.Value
			}
		}
		p.Settings = append(p.Settings, l)
	}
	p.Notes, p.Edits, p.Proof = got.Notes, c.administers(v) && c.c.Settings != nil, c.proof(v)
	c.draw(v, status, "settings", sheet{Title: "Settings", At: "/settings", Script: true, Body: p})
}

// settings shows all, or with ?key= one to change.
func (c *Console) settings(v *visit) {
	c.drawSettings(v, http.StatusOK, settingsPage{Key: clipRunes(v.r.URL.Query().Get("key"), 100)})
}

func (c *Console) set(v *visit) {
	key, text := v.r.PostForm.Get("key"), strings.TrimSpace(v.r.PostForm.Get("value"))
	var value json.RawMessage // nil: back to file and environment
	err := error(nil)
	switch {
	case c.c.Settings == nil:
		err = gate.Fail(gate.ErrUnavailable, "Edit the configuration file.", "settings cannot be set while this castellan runs")
	case v.r.PostForm.Get("to") == "back" || text == "":
	case json.Valid([]byte(text)):
		value = json.RawMessage(text)
	default: // a plain word is a text
		value, err = json.Marshal(text)
	}
	if err == nil {
		err = c.onlyAdministrator(v, func() error { return c.c.Settings.Set(v.ctx, v.who, key, value) })
	}
	if err == nil {
		c.to(v, "/settings")
		return
	}
	e := gate.AsError(err)
	status := http.StatusForbidden
	switch {
	case waitOf(err) > 0:
		status = http.StatusTooManyRequests
	case e.Kind == gate.ErrInvalid:
		status = http.StatusBadRequest
	case e.Kind == gate.ErrUnavailable:
		status = http.StatusServiceUnavailable
	}
	c.drawSettings(v, status, settingsPage{Problem: e.Message + ". Nothing was changed.", Hint: e.Hint, Key: clipRunes(key, 100)})
}
