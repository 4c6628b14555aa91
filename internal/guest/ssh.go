package guest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"

	"castellan/internal/seal"
)

const (
	connectLimit = 10 * time.Second
	keepAlive    = 15 * time.Second
	// forcedCommand is what is asked for; whatever it is, the account's forced command runs.
	forcedCommand = "castellan bridge run"
)

// sshWay opens the one session of a bridge over SSH. Nothing of what it sends comes from outside: no options, no agent, no
// forwarding, no terminal, no environment.
type sshWay struct {
	address string
	user    string
	keyFile string
	pins    []hostKey
	open    func(path string) (seal.Secret, error)
}

func newSSHWay(b BridgeSettings, open func(string) (seal.Secret, error)) (*sshWay, error) {
	address, err := sshAddress(b.Address)
	if err != nil {
		return nil, err
	}
	w := &sshWay{address: address, user: b.User, keyFile: b.KeyFile, open: open}
	if w.user == "" {
		w.user = defaultUser
	}
	for _, text := range b.HostKey {
		k, err := parseHostKey(text)
		if err != nil {
			return nil, err
		}
		w.pins = append(w.pins, k)
	}
	_, err = w.signer()
	return w, err
}

// signer reads the key anew for each connection: it may have been exchanged.
func (w *sshWay) signer() (ssh.Signer, error) {
	secret, err := w.open(w.keyFile)
	if err != nil {
		return nil, err
	}
	signer, err := ssh.ParsePrivateKey(append(secret.Bytes(), '\n'))
	var locked *ssh.PassphraseMissingError
	switch {
	case errors.As(err, &locked):
		return nil, fmt.Errorf("read key %s: it has a passphrase; castellan needs one without", w.keyFile)
	case err != nil:
		return nil, fmt.Errorf("read key %s: %w", w.keyFile, err)
	}
	return signer, nil
}

// algorithms are those of the pinned keys, where their kinds are known: the server then shows the one that is pinned.
func (w *sshWay) algorithms() []string {
	var out []string
	for _, p := range w.pins {
		switch p.kind {
		case "":
			return nil
		case ssh.KeyAlgoRSA:
			out = append(out, ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256)
		default:
			out = append(out, p.kind)
		}
	}
	return out
}

// hostKeyError is a server that is not the pinned one.
type hostKeyError struct{ text string }

func (e *hostKeyError) Error() string { return e.text }

func (w *sshWay) verify(_ string, _ net.Addr, key ssh.PublicKey) error {
	got := ssh.FingerprintSHA256(key)
	if slices.ContainsFunc(w.pins, func(p hostKey) bool { return p.fingerprint == got }) {
		return nil
	}
	return &hostKeyError{fmt.Sprintf("the server shows the host key %s %s, which is not among the pinned ones", key.Type(), got)}
}

func (w *sshWay) dial(ctx context.Context) (io.ReadWriteCloser, error) {
	signer, err := w.signer()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, connectLimit)
	defer cancel()
	var dialer net.Dialer
	tcp, err := dialer.DialContext(ctx, "tcp", w.address)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { tcp.Close() }) // the handshake ends with the context
	var refused *hostKeyError
	client, err := w.handshake(tcp, signer, &refused)
	if err == nil {
		var s *sshSession
		if s, err = newSSHSession(client); err == nil && stop() {
			go s.keepAlive()
			return s, nil
		}
		client.Close()
	}
	stop()
	tcp.Close()
	switch {
	case refused != nil:
		return nil, refused
	case ctx.Err() != nil:
		return nil, fmt.Errorf("%s does not answer as an sshd within %s", w.address, connectLimit)
	}
	return nil, err
}

func (w *sshWay) handshake(tcp net.Conn, signer ssh.Signer, refused **hostKeyError) (*ssh.Client, error) {
	c, channels, requests, err := ssh.NewClientConn(tcp, w.address, &ssh.ClientConfig{
		User: w.user, Auth: []ssh.AuthMethod{ssh.PublicKeys(signer)}, HostKeyAlgorithms: w.algorithms(), ClientVersion: "SSH-2.0-castellan",
		HostKeyCallback: func(name string, at net.Addr, key ssh.PublicKey) error {
			err := w.verify(name, at, key)
			errors.As(err, refused)
			return err
		},
	})
	if err != nil {
		return nil, err
	}
	return ssh.NewClient(c, channels, requests), nil
}

// sshSession is the one session as a stream.
type sshSession struct {
	client  *ssh.Client
	session *ssh.Session
	in      io.WriteCloser
	out     io.Reader
	words   *head // what it says beside frames: why it does not start
	once    sync.Once
	closed  chan struct{}
}

func newSSHSession(client *ssh.Client) (*sshSession, error) {
	session, err := client.NewSession()
	if err != nil {
		return nil, err
	}
	s := &sshSession{client: client, session: session, words: &head{most: 2000}, closed: make(chan struct{})}
	session.Stderr = s.words
	if s.in, err = session.StdinPipe(); err != nil {
		return nil, err
	}
	if s.out, err = session.StdoutPipe(); err != nil {
		return nil, err
	}
	return s, session.Start(forcedCommand)
}

// Read reads what the bridge says; at the end it says why there is no more.
func (s *sshSession) Read(p []byte) (int, error) {
	n, err := s.out.Read(p)
	if errors.Is(err, io.EOF) && n == 0 {
		return 0, s.why()
	}
	return n, err
}

// why tells how the session has ended.
func (s *sshSession) why() error {
	ended := make(chan error, 1)
	go func() { ended <- s.session.Wait() }()
	var how error
	select {
	case how = <-ended:
	case <-time.After(time.Second):
	}
	text := strings.TrimSpace(s.words.String())
	var exit *ssh.ExitError
	switch {
	case errors.As(how, &exit) && exit.ExitStatus() == 127:
		return fmt.Errorf("the account has no forced command, or the program is not on the node (it says %s)", bounded(text, 300))
	case errors.As(how, &exit) && text != "":
		return fmt.Errorf("the bridge ended with %d and said: %s", exit.ExitStatus(), bounded(text, 600))
	case errors.As(how, &exit):
		return fmt.Errorf("the bridge ended with %d", exit.ExitStatus())
	case text != "":
		return fmt.Errorf("the connection ended; the node said: %s", bounded(text, 600))
	}
	return io.EOF
}

func (s *sshSession) Write(p []byte) (int, error) { return s.in.Write(p) }

func (s *sshSession) Close() error {
	s.once.Do(func() { close(s.closed) })
	return s.client.Close()
}

// keepAlive ends a connection that is dead.
func (s *sshSession) keepAlive() {
	tick := time.NewTicker(keepAlive)
	defer tick.Stop()
	for {
		select {
		case <-s.closed:
			return
		case <-tick.C:
		}
		answered := make(chan error, 1)
		go func() {
			_, _, err := s.client.SendRequest("keepalive@openssh.com", true, nil)
			answered <- err
		}()
		select {
		case <-s.closed:
			return
		case err := <-answered:
			if err == nil {
				continue
			}
		case <-time.After(keepAlive):
		}
		s.Close()
		return
	}
}

// head keeps the begin of what is written to it.
type head struct {
	mu   sync.Mutex
	most int
	b    []byte
}

func (h *head) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.b = append(h.b, p[:min(len(p), h.most-len(h.b))]...)
	return len(p), nil
}

func (h *head) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return string(h.b)
}
