package proxmox

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"time"

	"castellan/internal/gate"
)

// Sink takes files that are downloaded.
type Sink interface {
	// Save streams a file to where it stays; what is not whole or too large is not kept. key makes its name unlike any
	// other's. length is what the server tells of it, -1 = nothing. Its errors can be shown.
	Save(key string, d gate.Download, length int64, from io.Reader) (gate.Saved, error)
	// Fits refuses what is known to be too large, before it is asked for.
	Fits(size int64) error
}

// downloadFor bounds a download, whatever the limit of other requests.
const downloadFor = 15 * time.Minute

// taking is a download on its way into the sink.
type taking struct {
	sink Sink
	key  string
	what gate.Download

	saved *gate.Saved
	err   error
}

// taking is what a permit's download goes into; nil for a request that brings none.
func (c *Client) taking(w gate.Write, rendered gate.Rendered) (*taking, error) {
	if !rendered.Download {
		return nil, nil
	}
	if c.sink == nil {
		return nil, errors.New("there is no folder for downloads")
	}
	t := &taking{sink: c.sink, key: w.Key}
	if w.Download != nil {
		t.what = *w.Download
	}
	if t.what.Size != nil {
		if err := c.sink.Fits(*t.what.Size); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// take streams a reply that is a file; it says whether it was one. Pages and the API's own answers are none.
func (t *taking) take(res *http.Response) bool {
	media, _, err := mime.ParseMediaType(res.Header.Get("Content-Type"))
	if res.StatusCode != http.StatusOK || err != nil || media == "text/html" || media == "application/json" {
		return false
	}
	length := res.ContentLength
	if res.Header.Get("Content-Encoding") != "" || res.Uncompressed {
		length = -1
	}
	saved, err := t.sink.Save(t.key, t.what, length, res.Body)
	if err != nil {
		t.err = fmt.Errorf("save what was downloaded: %w", err)
		return true
	}
	t.saved = &saved
	return true
}

// notTaken is a download that left nothing behind: it changes nothing at the target either.
func notTaken(u *gate.UpstreamError) *gate.UpstreamError {
	u.Delivery = gate.NotCarriedOut
	if u.Hint == "" {
		u.Hint = "Nothing was kept, and nothing has changed at the target."
	}
	return u
}

func (k *call) notSaved() *gate.UpstreamError {
	return notTaken(&gate.UpstreamError{Kind: gate.ErrUnavailable, Message: clean(k.taking.err.Error(), 600), Cause: k.taking.err})
}
