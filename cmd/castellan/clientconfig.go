package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"castellan/internal/cli"
	"castellan/internal/seal"
)

// client is a program that speaks MCP, and where it looks for servers.
type client struct {
	name, title string
	file        func(home string) string // JSON that holds the servers; nil: a command or another format, which is printed only
	under       string                   // the key of the servers
	stdio, http func(s mcpServer) any    // its entry; nil: it has no such way
	says        func(s mcpServer) string // what is printed where no file is written
}

// mcpServer is castellan as a client starts or finds it.
type mcpServer struct {
	command string
	args    []string
	url     string // of the daemon's MCP endpoint; empty: stdio
}

// configHome is where programs keep settings on this system.
func configHome(home string) string {
	switch runtime.GOOS {
	case "darwin":
		return filepath.Join(home, "Library", "Application Support")
	case "windows":
		return filepath.Join(home, "AppData", "Roaming")
	}
	return filepath.Join(home, ".config")
}

type commandEntry struct {
	Type    string   `json:"type,omitempty"`
	Command string   `json:"command"`
	Args    []string `json:"args"`
}

// clients lists those that are known.
func clients() []client {
	command := func(s mcpServer) any { return commandEntry{"", s.command, s.args} }
	entry := func(kind, key string) func(mcpServer) any {
		return func(s mcpServer) any {
			if kind == "" {
				return map[string]string{key: s.url}
			}
			return map[string]string{"type": kind, key: s.url}
		}
	}
	remote := func(s mcpServer) any { // through a bridge, where a client speaks stdio only
		return commandEntry{"", "npx", []string{"-y", "mcp-remote", s.url}}
	}
	return []client{
		{name: "claude-desktop", title: "Claude Desktop", under: "mcpServers", stdio: command, http: remote,
			file: func(home string) string {
				return filepath.Join(configHome(home), "Claude", "claude_desktop_config.json")
			}},
		{name: "claude-code", title: "Claude Code", says: func(s mcpServer) string {
			if s.url != "" {
				return "claude mcp add --transport http castellan " + shellWord(s.url)
			}
			line := "claude mcp add castellan --"
			for _, word := range append([]string{s.command}, s.args...) {
				line += " " + shellWord(word)
			}
			return line
		}},
		{name: "cursor", title: "Cursor", under: "mcpServers", stdio: command, http: entry("", "url"),
			file: func(home string) string { return filepath.Join(home, ".cursor", "mcp.json") }},
		{name: "vscode", title: "VS Code", under: "servers", stdio: func(s mcpServer) any { return commandEntry{"stdio", s.command, s.args} }, http: entry("http", "url"),
			file: func(home string) string { return filepath.Join(configHome(home), "Code", "User", "mcp.json") }},
		{name: "windsurf", title: "Windsurf", under: "mcpServers", stdio: command, http: entry("", "serverUrl"),
			file: func(home string) string { return filepath.Join(home, ".codeium", "windsurf", "mcp_config.json") }},
		{name: "zed", title: "Zed (settings.json)", under: "context_servers", stdio: command, http: entry("", "url")},
		{name: "gemini", title: "Gemini CLI", under: "mcpServers", stdio: command, http: entry("", "httpUrl"),
			file: func(home string) string { return filepath.Join(home, ".gemini", "settings.json") }},
		{name: "codex", title: "Codex (~/.codex/config.toml)", says: func(s mcpServer) string {
			if s.url != "" {
				return fmt.Sprintf("[mcp_servers.castellan]\nurl = %q", s.url)
			}
			quoted := make([]string, len(s.args))
			for i, a := range s.args {
				quoted[i] = fmt.Sprintf("%q", a)
			}
			return fmt.Sprintf("[mcp_servers.castellan]\ncommand = %q\nargs = [%s]", s.command, strings.Join(quoted, ", "))
		}},
		{name: "other", title: "Others, mostly", under: "mcpServers", stdio: command, http: entry("http", "url")},
	}
}

func clientNames() []string {
	var out []string
	for _, c := range clients() {
		out = append(out, c.name)
	}
	return out
}

// entry is what stands under the key castellan.
func (c client) entry(s mcpServer) any {
	if s.url != "" {
		return c.http(s)
	}
	return c.stdio(s)
}

// text is what a person pastes.
func (c client) text(s mcpServer) (string, error) {
	if c.says != nil {
		return c.says(s), nil
	}
	b, err := json.MarshalIndent(map[string]any{c.under: map[string]any{"castellan": c.entry(s)}}, "", "  ")
	return string(b), err
}

// there says whether the program seems to be used by this account.
func (c client) there(home string) bool {
	if c.file == nil {
		return false
	}
	_, err := os.Stat(filepath.Dir(c.file(home)))
	return err == nil
}

var (
	errPrintOnly = errors.New("its settings are not written by castellan")
	errOther     = errors.New("it has another entry called castellan")
)

// write puts castellan into the client's file and leaves all else as it is, in its order. changed is false when it stands there
// already; another entry of that name is replaced only on request.
func (c client) write(home string, s mcpServer, replace bool) (path string, changed bool, err error) {
	if c.file == nil {
		return "", false, errPrintOnly
	}
	path = c.file(home)
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	mode := fs.FileMode(0o600)
	old, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		old = nil
	case err != nil:
		return path, false, err
	default:
		if info, err := os.Stat(path); err == nil {
			mode = info.Mode().Perm()
		}
	}
	next, err := withEntry(old, c.under, c.entry(s), replace)
	if err != nil || next == nil {
		return path, false, err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return path, false, err
	}
	if err := seal.Replace(path, next); err != nil {
		return path, false, err
	}
	return path, true, os.Chmod(path, mode)
}

type member struct {
	key   string
	value json.RawMessage
}

// members reads an object in its order; comments and double keys are refused, since they would be lost.
func members(b []byte) ([]member, error) {
	d := json.NewDecoder(bytes.NewReader(b))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, errors.New("it is not a JSON object as it stands (comments are not understood)")
	}
	var out []member
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return nil, fmt.Errorf("it is not plain JSON: %w", err)
		}
		m := member{key: fmt.Sprint(t)}
		if slices.ContainsFunc(out, func(o member) bool { return o.key == m.key }) {
			return nil, fmt.Errorf("the key %q stands twice", m.key)
		}
		if err := d.Decode(&m.value); err != nil {
			return nil, fmt.Errorf("it is not plain JSON: %w", err)
		}
		out = append(out, m)
	}
	if _, err := d.Token(); err != nil {
		return nil, fmt.Errorf("it is not plain JSON: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows the JSON object")
	}
	return out, nil
}

func object(all []member) json.RawMessage {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, m := range all {
		if i > 0 {
			b.WriteByte(',')
		}
		key, _ := json.Marshal(m.key) // a string
		b.Write(key)
		b.WriteByte(':')
		b.Write(m.value)
	}
	b.WriteByte('}')
	return b.Bytes()
}

// withEntry is the file's text with castellan in it; nil when it stands there already.
func withEntry(old []byte, under string, entry any, replace bool) ([]byte, error) {
	text := bytes.TrimSpace(old)
	if len(text) == 0 {
		text = []byte("{}")
	}
	top, err := members(text)
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(top, func(m member) bool { return m.key == under })
	if at < 0 {
		top, at = append(top, member{under, json.RawMessage("{}")}), len(top)
	}
	servers, err := members(top[at].value)
	if err != nil {
		return nil, fmt.Errorf("under %q: %w", under, err)
	}
	want, err := json.Marshal(entry)
	if err != nil {
		return nil, err
	}
	mine := slices.IndexFunc(servers, func(m member) bool { return m.key == "castellan" })
	switch {
	case mine < 0:
		servers = append(servers, member{"castellan", want})
	case sameJSON(servers[mine].value, want):
		return nil, nil
	case !replace:
		return nil, errOther
	default:
		servers[mine].value = want
	}
	top[at].value = object(servers)
	var out bytes.Buffer
	if err := json.Indent(&out, object(top), "", "  "); err != nil {
		return nil, err
	}
	out.WriteByte('\n')
	return out.Bytes(), nil
}

func sameJSON(a, b []byte) bool {
	var x, y any
	if json.Unmarshal(a, &x) != nil || json.Unmarshal(b, &y) != nil {
		return false
	}
	p, err1 := json.Marshal(x)
	q, err2 := json.Marshal(y)
	return err1 == nil && err2 == nil && bytes.Equal(p, q)
}

// clientCommand prints or writes what MCP clients need.
func (a *app) clientCommand() *cobra.Command {
	var write, replace bool
	var url string
	cmd := &cobra.Command{Use: "client [NAME...]", Short: "Print what MCP clients need to find castellan, or write it into their settings", ValidArgs: clientNames(), Args: func(_ *cobra.Command, args []string) error {
		return knownClients(args)
	}, RunE: func(cmd *cobra.Command, args []string) error {
		if write && len(args) == 0 {
			return cli.Usage{Err: errors.New("--write: name the clients: " + strings.Join(clientNames(), ", "))}
		}
		s, err := a.asServer(url)
		if err != nil {
			return err
		}
		return a.clients(args, s, write, replace, cli.JSON(cmd))
	}}
	cmd.Flags().BoolVar(&write, "write", false, "write it into the settings of the clients that are named")
	cmd.Flags().BoolVar(&replace, "replace", false, "with --write: replace another entry called castellan")
	cmd.Flags().StringVar(&url, "url", "", "reach a daemon by HTTP: its address, such as https://castellan.lan:8443/mcp")
	return cmd
}

func knownClients(names []string) error {
	for _, n := range names {
		if !slices.Contains(clientNames(), n) {
			return cli.Usage{Err: fmt.Errorf("there is no client %.40q; known are: %s", n, strings.Join(clientNames(), ", "))}
		}
	}
	return nil
}

// asServer is this program as clients start it; the configuration is named, since their environment is not that of this shell.
func (a *app) asServer(url string) (mcpServer, error) {
	if url != "" {
		if !strings.HasPrefix(url, "https://") && !strings.HasPrefix(url, "http://") || strings.ContainsAny(url, " \"'\n") {
			return mcpServer{}, cli.Usage{Err: fmt.Errorf("--url %q: give http(s)://HOST:PORT/mcp", url)}
		}
		return mcpServer{url: url}, nil
	}
	self, err := os.Executable()
	if err != nil {
		return mcpServer{}, fmt.Errorf("find this program: %w", err)
	}
	path, err := a.configPath()
	if err != nil {
		return mcpServer{}, err
	}
	if path, err = filepath.Abs(path); err != nil {
		return mcpServer{}, fmt.Errorf("find configuration: %w", err)
	}
	return mcpServer{command: self, args: []string{"serve", "--config", path}}, nil
}

// clients prints, or writes, what the named ones need; all, where none is named.
func (a *app) clients(names []string, s mcpServer, write, replace, asJSON bool) error {
	home, err := os.UserHomeDir()
	if err != nil {
		return fmt.Errorf("find the home folder: %w", err)
	}
	out := map[string]any{}
	var faults []error
	for _, c := range clients() {
		if len(names) > 0 && !slices.Contains(names, c.name) {
			continue
		}
		text, err := c.text(s)
		if err != nil {
			return err
		}
		if write {
			path, changed, err := c.write(home, s, replace)
			switch {
			case err == nil && changed:
				fmt.Fprintf(a.err, "%s: written into %s; start it anew\n", c.title, path)
				continue
			case err == nil:
				fmt.Fprintf(a.err, "%s: stands in %s already\n", c.title, path)
				continue
			case errors.Is(err, errPrintOnly):
			case errors.Is(err, errOther):
				faults = append(faults, fmt.Errorf("%s: %s: %w; --replace replaces it", c.title, path, err))
				continue
			default:
				fmt.Fprintf(a.err, "%s: %s could not be changed (%v), so put this in yourself:\n", c.title, path, err)
			}
		}
		where := ""
		if c.file != nil {
			where = " (" + c.file(home) + ")"
		}
		if asJSON {
			if c.says != nil {
				out[c.name] = text
			} else {
				out[c.name] = json.RawMessage(text)
			}
			continue
		}
		fmt.Fprintf(a.out, "%s%s:\n%s\n\n", c.title, where, text)
	}
	if asJSON {
		if err := cli.PrintJSON(a.out, out); err != nil {
			return err
		}
	}
	return errors.Join(faults...)
}
