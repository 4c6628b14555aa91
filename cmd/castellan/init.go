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

	"castellan/internal/cli"
	"castellan/internal/gate"
	"castellan/internal/local"
	"castellan/internal/regex"
	"castellan/internal/rights"
	"castellan/internal/seal"
)

// wizard asks what `init --minimal` needs. Flags answer in place of a person, for scripts.
type wizard struct {
	*app
	lines       *bufio.Reader
	address     string
	fingerprint string
	pins        []string // of the target that is known already: a certificate among them is not asked about again
	allow       string
	standIn     string
	tokenFile   string
	account     string   // the daemon's own
	accounts    []string // whose processes its socket serves
	asJSON      bool

	whole        bool // not only the minimal set-up
	want         rights.Want
	login        string // who makes the token, or "print"
	clientNames  []string
	writeClients bool
	keepThere    bool // a configuration that is there stays, and is looked at
	noDaemon     bool
	yes          bool
}

type allowance struct {
	name, text   string
	capabilities []string
}

// allowances are the answers to the one question of init.
var allowances = []allowance{
	{"look", "agents may look, nothing else", nil},
	{"everyday", "and do everyday things: power, snapshot, backup, guest configuration", []string{"power", "snapshot", "backup", "config"}},
	{"all", "and everything else; what is dangerous still asks you in a dialog", gate.Capabilities()},
}

func (a *app) initCommand() *cobra.Command {
	w := &wizard{app: a}
	var minimal bool
	var token string
	cmd := &cobra.Command{Use: "init", Short: "Set up: one target, its token, a configuration, a look at the result, settings of MCP clients", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		w.asJSON, w.whole = cli.JSON(cmd), !minimal
		w.want.User, w.want.Token, _ = strings.Cut(token, "!")
		if w.whole {
			return w.guided(cmd.Context())
		}
		return w.run(cmd.Context())
	}}
	cmd.Flags().BoolVar(&minimal, "minimal", false, "ask for a token that you made yourself with the printed commands, and print snippets")
	cmd.Flags().StringVar(&token, "token", defaultToken, "USER@REALM!TOKEN that castellan gets")
	cmd.Flags().StringVar(&w.login, "login", "", "who makes it: a login such as root@pam, whose password is typed and kept nowhere; or print, for commands to run yourself")
	cmd.Flags().StringSliceVar(&w.want.Pools, "pool", nil, "the token reaches only guests of these pools")
	cmd.Flags().StringSliceVar(&w.want.Guests, "guest", nil, "the token reaches only these guests")
	cmd.Flags().StringSliceVar(&w.want.Storages, "storage", nil, "the token's rights on storages are for these only")
	cmd.Flags().StringSliceVar(&w.clientNames, "client", nil, "MCP clients to print settings for: "+strings.Join(clientNames(), ", "))
	cmd.Flags().BoolVar(&w.writeClients, "write-clients", false, "write into the settings of the clients named")
	cmd.Flags().BoolVar(&w.keepThere, "keep", false, "where there is a configuration already, change nothing and look at it")
	cmd.Flags().BoolVar(&w.noDaemon, "no-daemon", false, "as root: do not offer a daemon of an account of its own")
	cmd.Flags().BoolVar(&w.yes, "yes", false, "do not ask before the requests that make user, roles and token are sent")
	cmd.Flags().StringVar(&w.address, "address", "", "host or host:port of a PVE node")
	cmd.Flags().StringVar(&w.fingerprint, "fingerprint", "", "SHA-256 of the certificate, if you know it already")
	cmd.Flags().StringVar(&w.allow, "allow", "", "look, everyday or all")
	cmd.Flags().StringVar(&w.standIn, "stand-in", "", "dialog, phrase or off: what stands in for an approval that only a person apart from the agent could give")
	cmd.Flags().StringVar(&w.account, "account", "", "system account of a daemon on this configuration, which gets all files; as root")
	cmd.Flags().StringSliceVar(&w.accounts, "accounts", nil, "with --account: whose processes the daemon's socket serves, and as which agent, such as alice=claude")
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
	if err := w.forDaemon(path); err != nil {
		return err
	}
	if _, err := os.Lstat(path); err == nil {
		return cli.Usage{Err: fmt.Errorf("there is a configuration already: %s; move it away first, or edit it (castellan config check)", path)}
	}
	if left := filepath.Join(filepath.Dir(path), tokenName); w.tokenFile != left {
		if _, err := os.Lstat(left); err == nil {
			return cli.Usage{Err: fmt.Errorf("there is a token of an earlier set-up: %s; move it away first, or use it: castellan init --minimal --token-file %s", left, shellWord(left))}
		}
	}
	w.lines = bufio.NewReader(w.in)
	if err := w.askAddress(ctx); err != nil {
		return err
	}
	if err := w.confirmFingerprint(ctx); err != nil {
		return err
	}
	capabilities, err := w.choose(ctx)
	if err != nil {
		return err
	}
	w.want.Capabilities = capabilities
	if err := w.want.Check(); err != nil {
		return cli.Usage{Err: err}
	}
	w.printGrants(w.want)
	secret, err := w.readToken(ctx, w.want.TokenID())
	if err != nil {
		return err
	}
	return w.write(ctx, path, secret, capabilities)
}

// forDaemon goes on as the account of the daemon, where one is named: what root makes would be closed to it.
func (w *wizard) forDaemon(path string) error {
	if w.account == "" {
		if len(w.accounts) > 0 {
			return cli.Usage{Err: errors.New("--accounts names whom a daemon serves: give --account too")}
		}
		return nil
	}
	uid, err := local.Accounts{}.Number(w.account)
	if err != nil {
		return cli.Usage{Err: fmt.Errorf("--account %s: %w; make it with: useradd --system --shell /usr/sbin/nologin %s", w.account, err, shellWord(w.account))}
	}
	if me := os.Geteuid(); me != 0 && me != uid || uid == 0 {
		return cli.Usage{Err: fmt.Errorf("run init --account %s as root; the account itself is any but root", w.account)}
	}
	if err := w.become(w.account); err != nil {
		return err
	}
	dir := filepath.Dir(path)
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return cli.Usage{Err: fmt.Errorf("there is no folder %s that %s may use; make it with: install -d -m 0700 -o %s -g %s %s", dir, w.account, w.account, w.account, shellWord(dir))}
	}
	return nil
}

// defaultToken is what the printed lines make; tokenName is the file that keeps it, beside the configuration.
const (
	defaultToken = "castellan@pve!castellan"
	tokenName    = "pve.token"
)

// tries bounds how often a person is asked again after an answer that does not fit.
const tries = 3

// again says what was wrong with an answer, and whether the question is put once more: to a person only.
func (w *wizard) again(try int, complaint error) bool {
	if !w.terminal() || try >= tries {
		return false
	}
	fmt.Fprintf(w.err, "  %s. Once more, please.\n", cli.Safe(complaint.Error()))
	return true
}

var errStopped = errors.New("stopped; nothing was written")

func (w *wizard) ask(ctx context.Context, question string) (string, error) {
	fmt.Fprint(w.err, question)
	line, err := cli.ReadLine(ctx, w.lines)
	line = strings.TrimSpace(line)
	if line == "" {
		if err != nil {
			fmt.Fprintln(w.err)
		}
		if ctx.Err() != nil {
			return "", errStopped
		}
		return "", cli.Usage{Err: fmt.Errorf("nothing was typed at %q; nothing was written (each question has a flag: castellan init --help)", strings.TrimRight(question, ": "))}
	}
	return line, nil
}

func (w *wizard) askAddress(ctx context.Context) (err error) {
	given := w.address != ""
	for try := 1; ; try++ {
		if !given {
			if w.address, err = w.ask(ctx, "Address of a Proxmox VE node (host or host:port): "); err != nil {
				return err
			}
		}
		w.address, err = withPort(w.address)
		if err == nil {
			return nil
		}
		if given || !w.again(try, err) {
			return cli.Usage{Err: err}
		}
	}
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
	dialing, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	c, err := d.DialContext(dialing, "tcp", w.address)
	if err != nil {
		return gate.Fail(gate.ErrUnavailable, "Check the address, and that its port (8006 where none is given) is reachable from here.", "no TLS connection to %s: %v", w.address, err)
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
	if slices.ContainsFunc(w.pins, func(pin string) bool {
		return strings.EqualFold(strings.ReplaceAll(pin, ":", ""), hex.EncodeToString(sum[:]))
	}) {
		w.fingerprint = seen
		return nil
	}
	fmt.Fprintf(w.err, "%s shows a certificate with the SHA-256 fingerprint\n  %s\nOn the node (console, or a login that you trust) compare it with: pvenode cert info (or openssl x509 -noout -fingerprint -sha256 -in /etc/pve/local/pve-ssl.pem)\n", w.address, seen)
	for try := 1; ; try++ {
		answer, err := w.ask(ctx, "Is it the same? Type yes or no: ")
		if err != nil {
			return err
		}
		switch strings.ToLower(answer) {
		case "yes", "y":
			w.fingerprint = seen
			return nil
		case "no", "n":
		default:
			if w.again(try, fmt.Errorf("%q is neither yes nor no", answer)) {
				continue
			}
		}
		return gate.Fail(gate.ErrDenied, "Find out whom you are talking to before going on.", "the fingerprint was not confirmed; nothing was written")
	}
}

func colons(b []byte) string {
	parts := make([]string, len(b))
	for i, x := range b {
		parts[i] = fmt.Sprintf("%02X", x)
	}
	return strings.Join(parts, ":")
}

func (w *wizard) choose(ctx context.Context) ([]string, error) {
	if w.standIn != "" && !slices.Contains([]string{"dialog", "phrase", "off"}, w.standIn) {
		return nil, cli.Usage{Err: fmt.Errorf("--stand-in %q is none of dialog, phrase, off", w.standIn)}
	}
	given := w.allow != ""
	if !given {
		fmt.Fprintln(w.err, "\nWhat may agents do? Every change is a plan that is shown first.")
		for i, a := range allowances {
			fmt.Fprintf(w.err, "  %d  %-9s %s\n", i+1, a.name, a.text)
		}
	}
	for try := 1; ; try++ {
		if !given {
			answer, err := w.ask(ctx, "1, 2 or 3: ")
			if err != nil {
				return nil, err
			}
			w.allow = strings.ToLower(answer)
		}
		for i, a := range allowances {
			if w.allow == a.name || w.allow == fmt.Sprint(i+1) {
				w.allow = a.name
				if w.standIn == "" && w.account == "" {
					w.standIn = "dialog"
				}
				return a.capabilities, nil
			}
		}
		if err := fmt.Errorf("%q is none of look, everyday, all", w.allow); given || !w.again(try, err) {
			return nil, cli.Usage{Err: err}
		}
	}
}

var tokenForm = &regex.Lazy{Expr: `^[^\s!=:/]+@[A-Za-z][A-Za-z0-9.\-_]+![A-Za-z][A-Za-z0-9.\-_]+=[0-9a-fA-F]{8}-[0-9a-fA-F-]{27}$`}

// readToken reads the token without showing it.
func (w *wizard) readToken(ctx context.Context, id string) (string, error) {
	for try := 1; ; try++ {
		text, err := w.typedToken(ctx)
		if err != nil {
			return "", err
		}
		text = strings.TrimPrefix(strings.TrimSpace(text), "PVEAPIToken=")
		if !strings.Contains(text, "!") {
			text = id + "=" + text
		}
		if tokenForm.MatchString(text) {
			return text, nil
		}
		err = errors.New("that is no token secret: a UUID is wanted, or the whole USER@REALM!ID=UUID; nothing was written")
		if w.tokenFile != "" || !w.again(try, err) {
			return "", cli.Usage{Err: err}
		}
	}
}

func (w *wizard) typedToken(ctx context.Context) (string, error) {
	var text string
	var err error
	switch {
	case w.tokenFile != "":
		var s seal.Secret
		if s, err = seal.Open(w.tokenFile); err == nil {
			text = s.Reveal()
		}
	case w.terminal():
		fmt.Fprintln(w.err)
		text, err = cli.Secret(ctx, w.in.(*os.File), w.err, "The secret that the token command printed (value; it is not shown here): ")
	default:
		if text, err = cli.ReadLine(ctx, w.lines); errors.Is(err, io.EOF) {
			err = nil
		}
	}
	if ctx.Err() != nil {
		return "", errStopped
	}
	if err != nil {
		return "", fmt.Errorf("read token: %w", err)
	}
	return text, nil
}

func (w *wizard) write(ctx context.Context, path, token string, capabilities []string) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make configuration folder: %w", err)
	}
	tokenPath := filepath.Join(dir, tokenName)
	if w.tokenFile != tokenPath { // one from an earlier set-up may be named as the file to take
		if err := seal.Create(tokenPath, []byte(token+"\n")); err != nil {
			return fmt.Errorf("write token: %w", err)
		}
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
	s.Daemon.Account = w.account
	if url, set := w.env("CASTELLAN_STORE_URL"); set {
		s.Store.URL = url
	}
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
`, s.Store.URL, w.address, tokenPath, w.fingerprint, strings.Join(quoted, ", "))
	if w.standIn != "" {
		text += fmt.Sprintf("# What stands in for approvals of a person where one account holds everything: \"dialog\", \"phrase\" or \"off\".\nstand_in = %q\n", w.standIn)
	}
	if w.account != "" {
		served := make([]string, len(w.accounts))
		for i, a := range w.accounts {
			served[i] = fmt.Sprintf("%q", a)
		}
		text += fmt.Sprintf(`
[daemon]
account = %q
accounts = [%s]  # whose processes the socket serves, and as which agent: ["alice=claude"]
`, w.account, strings.Join(served, ", "))
	}
	if err := seal.Create(path, []byte(text)); err != nil {
		return fmt.Errorf("write configuration: %w", err)
	}
	fmt.Fprintf(w.err, "\nWrote %s. A test read:\n", path)
	w.config = path
	for try := 1; ; try++ {
		err := w.testRead(ctx)
		if err == nil && w.whole {
			return w.finish(ctx, path)
		}
		if err == nil {
			return w.snippets(path)
		}
		var refused *gate.UpstreamError
		if w.tokenFile == "" && errors.As(err, &refused) && refused.Auth && w.again(try, errors.New("the node does not take this token")) {
			if token, err = w.readToken(ctx, w.want.TokenID()); err != nil {
				return fmt.Errorf("no token that the node takes was typed: the configuration stays, a good token goes into %s (one line, USER@REALM!ID=SECRET)", tokenPath)
			}
			if err := seal.Replace(tokenPath, []byte(token+"\n")); err != nil {
				return fmt.Errorf("write token: %w", err)
			}
			continue
		}
		fmt.Fprintf(w.err, "The test read failed; the configuration stays. A token is put right in %s (one line, USER@REALM!ID=SECRET). Then: castellan call list_nodes\n", tokenPath)
		return err
	}
}

func (w *wizard) testRead(ctx context.Context) error {
	var out *gate.Outcome
	err := w.reader(ctx, func(g cli.Gate) (err error) {
		out, err = g.Do(ctx, gate.Call{Operation: "list_nodes", Principal: w.person()}, nil)
		return err
	})
	if err != nil {
		return err
	}
	var answer struct {
		Nodes []struct {
			Node   string `json:"node"`
			Status string `json:"status"`
		} `json:"nodes"`
		Incomplete []string `json:"incomplete"`
	}
	if err := json.Unmarshal(out.Answer, &answer); err != nil {
		return fmt.Errorf("read nodes: %w", err)
	}
	for _, n := range answer.Nodes {
		fmt.Fprintf(w.err, "  %s is %s\n", cli.Safe(n.Node), cli.Safe(n.Status))
	}
	if len(answer.Nodes) == 0 {
		fmt.Fprintln(w.err, "  the token is good and sees no node: were the acl lines run, for the user and for the token?")
	}
	for _, text := range answer.Incomplete {
		fmt.Fprintf(w.err, "  not complete: %s\n", cli.Safe(text))
	}
	fmt.Fprintln(w.err)
	return nil
}

// reader gives f a gate; for a daemon that is not there yet, one of this process, which runs as its account.
func (w *wizard) reader(ctx context.Context, f func(cli.Gate) error) error {
	if w.account != "" {
		return w.within(ctx, func(h *house) error { return f(h.gate) })
	}
	g, done, err := w.open(ctx)
	if err != nil {
		return err
	}
	defer done()
	return f(g)
}

// snippets print what MCP clients need, with the absolute path of this program.
func (w *wizard) snippets(path string) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	if w.account != "" { // clients reach the daemon by its socket
		line := shellWord(self) + " --config " + shellWord(path) + " daemon"
		if w.asJSON {
			return cli.PrintJSON(w.out, map[string]any{"config": path, "check": line + " check", "start": line})
		}
		fmt.Fprintf(w.out, "Next:\n%s check\n%s\n", line, line)
		return nil
	}
	server, err := w.asServer("")
	if err != nil {
		return err
	}
	if w.asJSON {
		b, err := clients()[0].text(server)
		if err != nil {
			return err
		}
		return cli.PrintJSON(w.out, map[string]any{"config": path, "claude_desktop": json.RawMessage(b), "claude_code": clients()[1].says(server)})
	}
	return w.clients([]string{"claude-desktop", "claude-code"}, server, false, false, false)
}

var plainWord = &regex.Lazy{Expr: `^[A-Za-z0-9_./:=@%+,-]+$`}

// shellWord quotes what a shell would take apart.
func shellWord(s string) string {
	if plainWord.MatchString(s) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
