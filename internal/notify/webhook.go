package notify

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"castellan/internal/seal"
)

// sink tells people in one way.
type sink interface {
	name() string
	send(ctx context.Context, m *message) error
}

const sendLimit = 20 * time.Second // for one try

// webhook posts the message as JSON. With a secret, Castellan-Signature is "t=<seconds>,v1=<hex>": the HMAC-SHA-256 of
// the seconds, a point, and the body. Castellan-Delivery is the same for each try of one message.
type webhook struct {
	Webhook
	client *http.Client
}

func newWebhook(s Webhook) (*webhook, error) {
	c, err := newClient(strings.HasPrefix(s.URL, "http:"), s.CAFile)
	return &webhook{s, c}, err
}

func (w *webhook) name() string { return "webhook" }

func (w *webhook) send(ctx context.Context, m *message) error {
	body, err := json.Marshal(m)
	if err != nil {
		return permanent{fmt.Errorf("write message: %w", err)}
	}
	header := map[string]string{"Content-Type": "application/json", "Castellan-Delivery": m.ID}
	if w.SecretFile != "" {
		secret, err := seal.Open(w.SecretFile)
		if err != nil {
			return err
		}
		t := strconv.FormatInt(time.Now().Unix(), 10)
		mac := hmac.New(sha256.New, secret.Bytes())
		mac.Write([]byte(t + "."))
		mac.Write(body)
		header["Castellan-Signature"] = "t=" + t + ",v1=" + hex.EncodeToString(mac.Sum(nil))
	}
	return post(ctx, w.client, w.URL, header, body)
}

// ntfy posts the text to a topic, with title, priority and link as headers.
type ntfy struct {
	Ntfy
	client *http.Client
}

func newNtfy(s Ntfy) (*ntfy, error) {
	c, err := newClient(strings.HasPrefix(s.URL, "http:"), s.CAFile)
	return &ntfy{s, c}, err
}

func (n *ntfy) name() string { return "ntfy" }

const maxNtfy = 3900 // ntfy turns longer texts into attachments

func (n *ntfy) send(ctx context.Context, m *message) error {
	header := map[string]string{"Content-Type": "text/plain; charset=utf-8", "Title": m.Subject, "Priority": "4", "Tags": "lock"}
	if m.Urgent {
		header["Priority"], header["Tags"] = "5", "rotating_light"
	}
	if m.URL != "" {
		header["Click"] = m.URL
	}
	if n.TokenFile != "" {
		t, err := seal.Open(n.TokenFile)
		if err != nil {
			return err
		}
		header["Authorization"] = "Bearer " + strings.TrimSpace(t.Reveal())
	}
	text := m.text()
	if len(text) > maxNtfy {
		text = text[:strings.LastIndexByte(text[:maxNtfy], '\n')+1] + "…\n"
	}
	return post(ctx, n.client, n.URL, header, []byte(text))
}

func post(ctx context.Context, client *http.Client, url string, header map[string]string, body []byte) error {
	ctx, cancel := context.WithTimeout(ctx, sendLimit)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return permanent{fmt.Errorf("make request: %w", err)}
	}
	r.Header.Set("User-Agent", "castellan")
	for k, v := range header {
		r.Header.Set(k, v)
	}
	a, err := client.Do(r)
	if err != nil {
		return fmt.Errorf("send: %w", err)
	}
	defer a.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(a.Body, 64<<10)) // so that the connection can serve again
	return answered(a.StatusCode)
}
