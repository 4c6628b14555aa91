package proxmox

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"castellan/internal/gate"
	"castellan/internal/seal"
)

// files keeps secrets by reference.
type files map[string]string

func (f files) Read(ref string) ([]byte, error) {
	s, ok := f[ref]
	if !ok {
		return nil, fmt.Errorf("open %s: no such file", ref)
	}
	return []byte(s), nil
}

func (f files) Open(ref string) (seal.Secret, error) {
	b, err := f.Read(ref)
	return seal.NewSecret(b), err
}

// plainCatalog renders any operation from its own name.
type plainCatalog struct {
	secrets    []string
	privileges []string
}

func (p plainCatalog) Judge(r gate.Request) gate.Judgement {
	return gate.Judgement{Operation: r.Operation, Secrets: p.secrets, Privileges: p.privileges}
}

func (plainCatalog) Render(r gate.Request, open func(gate.Value) (string, error)) (gate.Rendered, error) {
	method, path, _ := strings.Cut(r.Operation, " ")
	form := url.Values{}
	for _, p := range r.Params {
		for _, v := range p.Values {
			text, err := open(v)
			if err != nil {
				return gate.Rendered{}, err
			}
			if slot := "{" + p.Name + "}"; strings.Contains(path, slot) {
				path = strings.Replace(path, slot, url.PathEscape(text), 1)
				continue
			}
			form.Add(p.Name, text)
		}
	}
	if strings.ContainsAny(path, "{}") {
		return gate.Rendered{}, errors.New("a placeholder has no value")
	}
	out := gate.Rendered{Method: method, Path: path}
	if method == "GET" || method == "DELETE" {
		out.Query = form.Encode()
	} else {
		out.Body = form.Encode()
	}
	return out, nil
}

// seen is a request as it arrived.
type seen struct {
	line   string // "GET /api2/json/version"
	header http.Header
	body   string
	conn   int
}

// fake is a TLS server that answers with raw bytes.
type fake struct {
	addr   string
	ca     string // PEM
	leaf   *x509.Certificate
	answer func(n int, r seen) string // "" = cut the connection; hang = never answer

	mu    sync.Mutex
	got   []seen
	conns int
	drop  bool // close each connection after one answer, without saying so
	done  chan struct{}
}

const hang = "hang"

type leafOption func(*x509.Certificate)

// newFake starts a server whose certificate is signed by a CA without key usage, as the cluster's own is.
func newFake(t *testing.T, answer func(n int, r seen) string, options ...leafOption) *fake {
	t.Helper()
	f := &fake{answer: answer, done: make(chan struct{})}
	return startFake(t, f, makeCertificate(t, f, options...))
}

func startFake(t *testing.T, f *fake, cert tls.Certificate) *fake {
	t.Helper()
	ln, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{cert}})
	if err != nil {
		t.Fatal(err)
	}
	f.addr = ln.Addr().String()
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			f.mu.Lock()
			f.conns++
			n := f.conns
			f.mu.Unlock()
			all.Go(func() { f.serve(c, n) })
		}
	})
	t.Cleanup(func() {
		close(f.done)
		ln.Close()
		all.Wait()
	})
	return f
}

func (f *fake) serve(c net.Conn, n int) {
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		select {
		case <-f.done:
			c.Close()
		case <-stop:
		}
	}()
	defer c.Close()
	in := bufio.NewReader(c)
	for {
		req, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return
		}
		s := seen{line: req.Method + " " + req.RequestURI, header: req.Header, body: string(body), conn: n}
		f.mu.Lock()
		f.got = append(f.got, s)
		count := len(f.got)
		drop := f.drop
		f.mu.Unlock()
		text := f.answer(count, s)
		if text == hang {
			<-f.done
			return
		}
		if text == "" {
			return
		}
		if _, err := io.WriteString(c, text); err != nil || drop || strings.Contains(text, "Connection: close") {
			return
		}
	}
}

func (f *fake) requests() []seen {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]seen{}, f.got...)
}

func makeCertificate(t *testing.T, f *fake, options ...leafOption) tls.Certificate {
	t.Helper()
	caKey, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	// No KeyUsage: the cluster CA of the genuine product has none.
	ca := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "Proxmox Virtual Environment"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(3650 * 24 * time.Hour), IsCA: true, BasicConstraintsValid: true}
	caDER, err := x509.CreateCertificate(rand.Reader, ca, ca, &caKey.PublicKey, caKey)
	if err != nil {
		t.Fatal(err)
	}
	key, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	leaf := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "pve1"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(700 * 24 * time.Hour), DNSNames: []string{"pve1"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	for _, o := range options {
		o(leaf)
	}
	der, err := x509.CreateCertificate(rand.Reader, leaf, ca, &key.PublicKey, caKey)
	if err != nil {
		t.Fatal(err)
	}
	f.ca = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: caDER}))
	if f.leaf, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// raw makes an answer.
func raw(status, contentType, body string) string {
	head := "HTTP/1.1 " + status + "\r\nServer: pve-api-daemon/3.0\r\n"
	if contentType != "" {
		head += "Content-Type: " + contentType + "\r\n"
	}
	return head + fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body)
}

const jsonType = "application/json;charset=UTF-8"

func ok(data string) string { return raw("200 OK", jsonType, `{"data":`+data+`}`) }

func zipped(body string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = io.WriteString(w, body)
	_ = w.Close()
	return fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%s", b.Len(), b.String())
}

const testToken = "root@pam!full=11111111-1111-4111-8111-111111111111"

// tokenTarget is a target that trusts the fakes' CAs.
func tokenTarget(fakes ...*fake) (Target, files) {
	t := Target{Name: "lab", Kind: "pve", TokenFile: "token", CAFile: "ca"}
	have := files{"token": testToken + "\n"}
	for _, f := range fakes {
		t.Addresses = append(t.Addresses, f.addr)
		have["ca"] += f.ca
	}
	return t, have
}

func newClient(t *testing.T, set Target, secrets files) *Client {
	t.Helper()
	c, err := New(Config{Settings: Settings{Targets: []Target{set}}, Catalog: plainCatalog{}, Secrets: secrets.Open, ReadFile: secrets.Read})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func request(t *testing.T, operation string, params map[string]any) gate.Request {
	t.Helper()
	r, err := gate.NewRequest("pve", operation, params)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func plainOpen(v gate.Value) (string, error) { return v.Text, nil }

func readOne(t *testing.T, c *Client, operation string, params map[string]any) (gate.Answer, error) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), 20*time.Second)
	defer stop()
	return c.Read(ctx, "", request(t, operation, params))
}

func sendOne(t *testing.T, c *Client, operation string, params map[string]any) (gate.Answer, *gate.UpstreamError) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), 20*time.Second)
	defer stop()
	a, err := c.send(ctx, gate.Write{Request: request(t, operation, params), Open: plainOpen})
	if err == nil {
		return a, nil
	}
	var u *gate.UpstreamError
	if !errors.As(err, &u) {
		t.Fatalf("the error is no UpstreamError: %T %v", err, err)
	}
	return a, u
}
