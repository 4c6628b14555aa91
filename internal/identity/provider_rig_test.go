package identity_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/json"
	"maps"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
	"time"
)

// op is an outside provider that holds state: keys, codes that were given, and who is signed in there.
type op struct {
	t   *testing.T
	now func() time.Time
	*httptest.Server

	mu       sync.Mutex
	signer   crypto.Signer
	kid      string
	user     map[string]any // claims of who is signed in
	info     map[string]any // what userinfo adds
	codes    map[string]url.Values
	secret   string
	asked    int // for the keys
	mutate   func(claims map[string]any)
	header   map[string]any
	document func(d map[string]any)
}

func ecKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func newOP(t *testing.T, now func() time.Time) *op {
	o := &op{t: t, now: now, signer: ecKey(t), kid: "k1", codes: map[string]url.Values{}, secret: "the client's secret",
		user: map[string]any{"sub": "user-7", "email": "Ann@example.org", "email_verified": true}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", func(w http.ResponseWriter, r *http.Request) {
		d := map[string]any{"issuer": o.URL, "authorization_endpoint": o.URL + "/authorize?tenant=1", "token_endpoint": o.URL + "/token", "jwks_uri": o.URL + "/keys",
			"userinfo_endpoint": o.URL + "/userinfo", "authorization_response_iss_parameter_supported": true}
		if o.document != nil {
			o.document(d)
		}
		o.answer(w, d)
	})
	mux.HandleFunc("GET /keys", func(w http.ResponseWriter, r *http.Request) {
		o.mu.Lock()
		o.asked++
		o.mu.Unlock()
		o.answer(w, o.set())
	})
	mux.HandleFunc("POST /token", o.token)
	mux.HandleFunc("GET /userinfo", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer at" {
			http.Error(w, "no", http.StatusUnauthorized)
			return
		}
		o.answer(w, o.info)
	})
	o.Server = httptest.NewServer(mux)
	t.Cleanup(o.Close)
	return o
}

func (o *op) set() map[string]any {
	k := map[string]any{"kid": o.kid, "use": "sig"}
	switch s := o.signer.(type) {
	case *ecdsa.PrivateKey:
		maps.Copy(k, map[string]any{"kty": "EC", "crv": "P-256", "alg": "ES256", "x": b64(s.X.FillBytes(make([]byte, 32))), "y": b64(s.Y.FillBytes(make([]byte, 32)))})
	case *rsa.PrivateKey:
		maps.Copy(k, map[string]any{"kty": "RSA", "n": b64(s.N.Bytes()), "e": b64(big.NewInt(int64(s.E)).Bytes())})
	}
	return map[string]any{"keys": []any{map[string]any{"kty": "oct", "k": "AAAA"}, k}}
}

func (o *op) answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	if err := json.NewEncoder(w).Encode(v); err != nil {
		o.t.Error(err)
	}
}

// authorize plays the browser at the provider: it signs in there and is sent back.
func (o *op) authorize(redirect string) url.Values {
	o.t.Helper()
	u, err := url.Parse(redirect)
	if err != nil {
		o.t.Fatal(err)
	}
	q := u.Query()
	if q.Get("response_type") != "code" || q.Get("code_challenge_method") != "S256" || q.Get("tenant") != "1" || q.Get("redirect_uri") != origin+"/signin/oidc" || len(q.Get("nonce")) < 20 {
		o.t.Errorf("sent to %s", redirect)
	}
	code := rand.Text()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.codes[code] = q
	return url.Values{"code": {code}, "state": {q.Get("state")}, "iss": {o.URL}}
}

func (o *op) token(w http.ResponseWriter, r *http.Request) {
	o.mu.Lock()
	defer o.mu.Unlock()
	asked, ok := o.codes[r.PostFormValue("code")]
	delete(o.codes, r.PostFormValue("code"))
	id, secret, basic := r.BasicAuth()
	sum := sha256.Sum256([]byte(r.PostFormValue("code_verifier")))
	if !ok || !basic || id != "castellan" || secret != url.QueryEscape(o.secret) || b64(sum[:]) != asked.Get("code_challenge") || r.PostFormValue("redirect_uri") != asked.Get("redirect_uri") {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		_, _ = w.Write([]byte(`{"error":"invalid_grant"}`))
		return
	}
	claims := map[string]any{"iss": o.URL, "aud": "castellan", "nonce": asked.Get("nonce"), "iat": o.now().Unix(), "exp": o.now().Add(time.Minute).Unix()}
	maps.Copy(claims, o.user)
	if o.mutate != nil {
		o.mutate(claims)
	}
	o.answer(w, map[string]any{"access_token": "at", "token_type": "Bearer", "id_token": o.jwt(claims)})
}

func (o *op) jwt(claims map[string]any) string {
	o.t.Helper()
	head := map[string]any{"alg": "ES256", "kid": o.kid}
	if _, ok := o.signer.(*rsa.PrivateKey); ok {
		head["alg"] = "RS256"
	}
	maps.Copy(head, o.header)
	h, err := json.Marshal(head)
	if err != nil {
		o.t.Fatal(err)
	}
	c, err := json.Marshal(claims)
	if err != nil {
		o.t.Fatal(err)
	}
	signed := b64(h) + "." + b64(c)
	sum := sha256.Sum256([]byte(signed))
	var sig []byte
	switch s := o.signer.(type) {
	case *ecdsa.PrivateKey:
		x, y, err := ecdsa.Sign(rand.Reader, s, sum[:])
		if err != nil {
			o.t.Fatal(err)
		}
		sig = append(x.FillBytes(make([]byte, 32)), y.FillBytes(make([]byte, 32))...)
	case *rsa.PrivateKey:
		if sig, err = s.Sign(rand.Reader, sum[:], crypto.SHA256); err != nil {
			o.t.Fatal(err)
		}
	}
	return signed + "." + b64(sig)
}
