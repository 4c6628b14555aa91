package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"castellan/internal/cli"
	"castellan/internal/gate"
	"castellan/internal/regex"
	"castellan/internal/seal"
)

// wizard asks what `init --minimal` needs. Flags answer in place of a person, for scripts.
type wizard struct {
	*app
	lines       *bufio.Reader
	address     string
	fingerprint string
	allow       string
	standIn     string
	tokenFile   string
	asJSON      bool
}

// allowances are the answers to the one question of init.
var allowances = []struct {
	name, text   string
	capabilities []string
}{
	{"look", "agents may look, nothing else", nil},
	{"everyday", "and do everyday things: power, snapshot, backup, guest configuration", []string{"power", "snapshot", "backup", "config"}},
	{"all", "and everything else; what is dangerous still asks you in a dialog", gate.Capabilities()},
}

func (a *app) initCommand() *cobra.Command {
	w := &wizard{app: a}
	var minimal bool
	cmd := &cobra.Command{Use: "init", Short: "Set up: one target, its token, a configuration, a test read, snippets for MCP clients", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		if !minimal {
			return cli.Usage{Err: errors.New("only the minimal set-up is there yet: castellan init --minimal")}
		}
		w.asJSON = cli.JSON(cmd)
		return w.run(cmd.Context())
	}}
	cmd.Flags().BoolVar(&minimal, "minimal", false, "one account holds everything: a client on this machine, no daemon")
	cmd.Flags().StringVar(&w.address, "address", "", "host or host:port of a PVE node")
	cmd.Flags().StringVar(&w.fingerprint, "fingerprint", "", "SHA-256 of the certificate, if you know it already")
	cmd.Flags().StringVar(&w.allow, "allow", "", "look, everyday or all")
	cmd.Flags().StringVar(&w.standIn, "stand-in", "", "dialog, phrase or off: what stands in for an approval that only a person apart from the agent could give")
	cmd.Flags().StringVar(&w.tokenFile, "token-file", "", "file that holds USER@REALM!ID=SECRET, in place of typing it")
	return cmd
}

func (w *wizard) run(ctx context.Context) error {
	path, err := w.configPath()
	if err != nil {
		return err
	}
	if path, err = filepath.Abs(path); err != nil {
		return fmt.Errorf("find configuration: %w", err)
	}
	if _, err := os.Lstat(path); err == nil {
		return cli.Usage{Err: fmt.Errorf("there is a configuration already: %s; move it away first, or edit it (castellan config check)", path)}
	}
	w.lines = bufio.NewReader(w.in)
	if w.address == "" {
		if w.address, err = w.ask("Address of a Proxmox VE node (host or host:port): "); err != nil {
			return err
		}
	}
	if w.address, err = withPort(w.address); err != nil {
		return cli.Usage{Err: err}
	}
	if err := w.confirmFingerprint(ctx); err != nil {
		return err
	}
	capabilities, err := w.choose()
	if err != nil {
		return err
	}
	const token = "castellan@pve!castellan"
	fmt.Fprintln(w.err, "\nRun this on the node as root; it makes a user, a role and a token for exactly that:")
	for _, line := range firstGrants(token, capabilities) {
		fmt.Fprintln(w.err, "  "+line)
	}
	secret, err := w.readToken(token)
	if err != nil {
		return err
	}
	return w.write(ctx, path, secret, capabilities)
}

func (w *wizard) ask(question string) (string, error) {
	fmt.Fprint(w.err, question)
	line, err := w.lines.ReadString('\n')
	line = strings.TrimSpace(line)
	if line == "" {
		if err != nil {
			fmt.Fprintln(w.err)
		}
		return "", cli.Usage{Err: fmt.Errorf("nothing was typed at %q; nothing was written (each question has a flag: castellan init --help)", strings.TrimRight(question, ": "))}
	}
	return line, nil
}

func withPort(address string) (string, error) {
	address = strings.TrimSuffix(strings.TrimPrefix(address, "https://"), "/")
	if strings.ContainsAny(address, "/ ?#@") || address == "" {
		return "", fmt.Errorf("address %q: give host or host:port", address)
	}
	if _, _, err := net.SplitHostPort(address); err == nil {
		return address, nil
	}
	return net.JoinHostPort(strings.Trim(address, "[]"), "8006"), nil
}

// confirmFingerprint shows the certificate's fingerprint; the person compares it with what the node itself says.
// Nothing secret has been sent by then.
func (w *wizard) confirmFingerprint(ctx context.Context) error {
	d := &tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}} // only looks: the person decides, then it is pinned
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	c, err := d.DialContext(ctx, "tcp", w.address)
	if err != nil {
		return gate.Fail(gate.ErrUnavailable, "Check the address and that port 8006 is reachable from here.", "no TLS connection to %s: %v", w.address, err)
	}
	defer c.Close()
	sum := sha256.Sum256(c.(*tls.Conn).ConnectionState().PeerCertificates[0].Raw)
	seen := colons(sum[:])
	if w.fingerprint != "" {
		if !strings.EqualFold(strings.ReplaceAll(w.fingerprint, ":", ""), hex.EncodeToString(sum[:])) {
			return gate.Fail(gate.ErrDenied, "Find out whom you are talking to before going on.", "%s shows the certificate %s, not %s", w.address, seen, w.fingerprint)
		}
		w.fingerprint = seen
		return nil
	}
	fmt.Fprintf(w.err, "%s shows a certificate with the SHA-256 fingerprint\n  %s\nOn the node compare it with: pvenode cert info (or openssl x509 -noout -fingerprint -sha256 -in /etc/pve/local/pve-ssl.pem)\n", w.address, seen)
	answer, err := w.ask("Is it the same? Type yes: ")
	if err != nil {
		return err
	}
	if answer != "yes" {
		return gate.Fail(gate.ErrDenied, "Find out whom you are talking to before going on.", "the fingerprint was not confirmed; nothing was written")
	}
	w.fingerprint = seen
	return nil
}

func colons(b []byte) string {
	parts := make([]string, len(b))
	for i, x := range b {
		parts[i] = fmt.Sprintf("%02X", x)
	}
	return strings.Join(parts, ":")
}

func (w *wizard) choose() ([]string, error) {
	if w.allow == "" {
		fmt.Fprintln(w.err, "\nWhat may agents do? Every change is a plan that is shown first.")
		for i, a := range allowances {
			fmt.Fprintf(w.err, "  %d  %-9s %s\n", i+1, a.name, a.text)
		}
		answer, err := w.ask("1, 2 or 3: ")
		if err != nil {
			return nil, err
		}
		w.allow = answer
	}
	if w.standIn != "" && !slices.Contains([]string{"dialog", "phrase", "off"}, w.standIn) {
		return nil, cli.Usage{Err: fmt.Errorf("--stand-in %q is none of dialog, phrase, off", w.standIn)}
	}
	for i, a := range allowances {
		if w.allow == a.name || w.allow == fmt.Sprint(i+1) {
			w.allow = a.name
			if w.standIn == "" {
				w.standIn = "dialog"
			}
			return a.capabilities, nil
		}
	}
	return nil, cli.Usage{Err: fmt.Errorf("%q is none of look, everyday, all", w.allow)}
}

var tokenForm = &regex.Lazy{Expr: `^[^\s!=:/]+@[A-Za-z][A-Za-z0-9.\-_]+![A-Za-z][A-Za-z0-9.\-_]+=[0-9a-fA-F]{8}-[0-9a-fA-F-]{27}$`}

// readToken reads the token without showing it.
func (w *wizard) readToken(id string) (string, error) {
	var text string
	switch {
	case w.tokenFile != "":
		s, err := seal.Open(w.tokenFile)
		if err != nil {
			return "", fmt.Errorf("read token: %w", err)
		}
		text = s.Reveal()
	case w.terminal():
		fmt.Fprintf(w.err, "\nThe secret that the token command printed (value; it is not shown here): ")
		b, err := term.ReadPassword(int(w.in.(*os.File).Fd()))
		fmt.Fprintln(w.err)
		if err != nil {
			return "", fmt.Errorf("read token: %w", err)
		}
		text = string(b)
	default:
		line, err := w.lines.ReadString('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return "", fmt.Errorf("read token: %w", err)
		}
		text = line
	}
	text = strings.TrimSpace(text)
	if !strings.Contains(text, "!") {
		text = id + "=" + text
	}
	if !tokenForm.MatchString(text) {
		return "", cli.Usage{Err: errors.New("that is no token secret: a UUID is wanted, or the whole USER@REALM!ID=UUID; nothing was written")}
	}
	return text, nil
}

func (w *wizard) write(ctx context.Context, path, token string, capabilities []string) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make configuration folder: %w", err)
	}
	tokenPath := filepath.Join(dir, "pve.token")
	if err := seal.Create(tokenPath, []byte(token+"\n")); err != nil {
		return fmt.Errorf("write token: %w", err)
	}
	if _, err := seal.OpenOrCreateKeys(filepath.Join(dir, "keys")); err != nil {
		return fmt.Errorf("make keys: %w", err)
	}
	quoted := make([]string, len(capabilities))
	for i, c := range capabilities {
		quoted[i] = fmt.Sprintf("%q", c)
	}
	slices.Sort(quoted)
	var s Settings
	if err := s.complete(dir); err != nil {
		return err
	}
	text := fmt.Sprintf(`# castellan's configuration. Check it with: castellan config check

[store]
url = %q  # plans and ledger; written out so that every client and shell finds the same

[[target]]
name = "pve"
kind = "pve"
addresses = [%q]          # more nodes of the cluster may follow: reads fail over to them
token_file = %q
pins = [%q]

[policy]
# Switch with: castellan capability on|off NAME. Print what each takes with: castellan policy table
capabilities = [%s]
# What stands in for approvals of a person, as one account holds everything here: "dialog", "phrase" or "off".
stand_in = %q
`, s.Store.URL, w.address, tokenPath, w.fingerprint, strings.Join(quoted, ", "), w.standIn)
	if err := seal.Create(path, []byte(text)); err != nil {
		return fmt.Errorf("write configuration: %w", err)
	}
	fmt.Fprintf(w.err, "\nWrote %s. A test read:\n", path)
	w.config = path
	if err := w.testRead(ctx); err != nil {
		fmt.Fprintln(w.err, "The test read failed; the configuration stays. When it is put right: castellan call list_guests")
		return err
	}
	return w.snippets(path)
}

func (w *wizard) testRead(ctx context.Context) error {
	g, done, err := w.open(ctx)
	if err != nil {
		return err
	}
	defer done()
	out, err := g.Do(ctx, gate.Call{Operation: "list_nodes", Principal: w.person()}, nil)
	if err != nil {
		return err
	}
	var compact strings.Builder
	compact.Write(out.Answer)
	fmt.Fprintln(w.err, "  "+cli.Safe(clipped(compact.String(), 400)))
	return nil
}

// snippets print what MCP clients need, with the absolute path of this program.
func (w *wizard) snippets(path string) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	// The configuration is named, since a client's environment is not that of this shell.
	args := []string{"serve", "--config", path}
	type server struct {
		Command string   `json:"command"`
		Args    []string `json:"args"`
	}
	b, err := json.MarshalIndent(map[string]any{"mcpServers": map[string]server{"castellan": {self, args}}}, "", "  ")
	if err != nil {
		return err
	}
	line := "claude mcp add castellan --"
	for _, word := range append([]string{self}, args...) {
		line += " " + shellWord(word)
	}
	if w.asJSON {
		return cli.PrintJSON(w.out, map[string]any{"config": path, "claude_desktop": json.RawMessage(b), "claude_code": line})
	}
	fmt.Fprintf(w.out, "Claude Desktop (claude_desktop_config.json):\n%s\n\nClaude Code:\n%s\n", b, line)
	return nil
}

var plainWord = &regex.Lazy{Expr: `^[A-Za-z0-9_./:=@%+,-]+$`}

// shellWord quotes what a shell would take apart.
func shellWord(s string) string {
	if plainWord.MatchString(s) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
