package guest

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"errors"
	"net"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"castellan/internal/channel"
	"castellan/internal/frame"
	"castellan/internal/gate"
	"castellan/internal/ops/housetest"
	"castellan/internal/patch"
	"castellan/internal/store"
)

// liar is a guest whose sshd answers every word with the same text.
func liar(t *testing.T, answer string) (*channel.Channels, *channel.Entry) {
	t.Helper()
	host, _ := key(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	conf := &ssh.ServerConfig{PublicKeyCallback: func(ssh.ConnMetadata, ssh.PublicKey) (*ssh.Permissions, error) { return nil, nil }}
	conf.AddHostKey(host)
	session := func(n ssh.NewChannel) {
		ch, reqs, err := n.Accept()
		if err != nil {
			return
		}
		for r := range reqs {
			_ = r.Reply(true, nil) // the other side may be gone
			_, _ = ch.Write([]byte(answer))
			_, _ = ch.SendRequest("exit-status", false, ssh.Marshal(struct{ Code uint32 }{0}))
			ch.Close()
		}
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				_, channels, requests, err := ssh.NewServerConn(c, conf)
				if err != nil {
					return
				}
				go ssh.DiscardRequests(requests)
				for n := range channels {
					go session(n)
				}
			}()
		}
	}()
	_, signer, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	st, err := store.Open(t.Context(), store.Config{URL: filepath.Join(t.TempDir(), "state", "castellan.db"), Signer: signer})
	if err != nil {
		t.Fatal(err)
	}
	c, err := channel.NewChannels(channel.Config{Store: st, Sealer: housetest.Sealer{}, Own: func() ([]netip.Addr, error) { return nil, nil },
		Dial: func(context.Context, netip.AddrPort) (net.Conn, error) { return net.Dial("tcp", l.Addr().String()) }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(); st.Close() })
	e, err := channel.New("site", 101, "lxc")
	if err != nil {
		t.Fatal(err)
	}
	e.Address, e.Account, e.Identity = "192.0.2.7", "castellan", channel.Identity{Root: "r"}
	e.HostKeys = []string{strings.TrimSpace(string(ssh.MarshalAuthorizedKey(host.PublicKey())))}
	if err := c.Keep(t.Context(), e, "p_0.1"); err != nil {
		t.Fatal(err)
	}
	return c, e
}

// A port is reached where castellan itself could connect to it: the guest's report has no word for that.
func TestServicesSayWhatIsReached(t *testing.T) {
	c, e := liar(t, "castellan 1 services\ninit\trunning\nunit\ta.service\tactive\trunning\t1\t0\nport\ttcp\t0.0.0.0\t80\tweb\nport\ttcp\t127.0.0.1\t25\tmail\nend\n")
	look := &task{r: &Runner{channels: c}, o: opened{where: frame.CT, word: wordUpdates, vmid: 101}, id: "p_1.6"}
	res, err := look.services(t.Context(), e, 20*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	var h patch.House
	if err := json.Unmarshal(res.Report, &h); err != nil {
		t.Fatal(err)
	}
	if len(h.Ports) != 2 || h.Ports[0].Reached == nil || !*h.Ports[0].Reached || h.Ports[1].Reached != nil {
		t.Errorf("%s", res.Report)
	}
}

// A copy of an enrolled guest has its keys and may take its address: what it says when it is looked at counts for nothing. One that
// does not tell which machine it is may be anybody.
func TestACopyAnswers(t *testing.T) {
	const mine, copied = "02:00:00:00:00:01", "02:00:00:00:00:02"
	base := "system\tdebian\t12\tbookworm\tapt\tDebian\nboot\t11111111-2222-3333-4444-555555555555\nclock\t" + strconv.FormatInt(time.Now().Unix(), 10) + "\ndatabase\tclean\nreboot\tno\nautomatic\toff\n"
	for word, text := range map[string]string{
		"check":    base + "fresh\tyes\n",
		"status":   base,
		"services": "init\trunning\nunit\ta.service\tactive\trunning\t1\t0\n",
		"result":   "id\tp_1.5\nmode\tall\nbegan\t1796040000\nended\t1796040010\noutcome\tended\nexit\t0\nasked\tupgrade a:all 1 2 x\ndone\tupgrade a:all 1 2 -\ndatabase\tclean\nreboot\tno\n",
	} {
		for _, k := range []struct{ name, cards, says string }{
			{"itself", "card\t" + copied + "\ncard\t" + strings.ToUpper(mine) + "\n", ""},
			{"a copy", "card\t" + copied + "\n", "another machine answered"},
			{"it does not tell", "", "which machine answered is not known"},
			{"it tells nonsense", "card\tx\n", "which machine answered is not known"},
		} {
			c, e := liar(t, "castellan 1 "+word+"\n"+k.cards+text+"end\n")
			look := &task{r: &Runner{channels: c}, g: configured{cards: []string{mine}}, id: "p_1.6", o: opened{where: frame.CT, word: wordUpdates, vmid: 101, values: map[string][]string{"word": {word}}}}
			res, err := lookBy(t, look, word, e)
			var u *gate.UpstreamError
			switch {
			case k.name == "a copy" && (!errors.As(err, &u) || u.Kind != gate.ErrDenied || u.Delivery != gate.NotCarriedOut || !strings.Contains(u.Message, k.says)):
				t.Errorf("%s, %s: %v %s", word, k.name, err, res.Report)
			case k.name != "a copy" && (err != nil || strings.Contains(string(res.Report), "which machine answered is not known") != (k.says != "")):
				t.Errorf("%s, %s: %v %s", word, k.name, err, res.Report)
			}
		}
	}
}

// lookBy asks a guest one of the words that only look.
func lookBy(t *testing.T, look *task, word string, e *channel.Entry) (res gate.RunResult, err error) {
	t.Helper()
	switch word {
	case "check":
		return look.check(t.Context(), e, 20*time.Second)
	case "services":
		return look.services(t.Context(), e, 20*time.Second)
	case "result":
		return look.result(t.Context(), e, 20*time.Second)
	}
	var p patch.Report
	if err = look.ask(t.Context(), e, patch.Status, 20*time.Second, func(b []byte) (err error) { p, err = look.status(t.Context(), b); return err }); err == nil {
		res, err = answer(p, "")
	}
	return res, look.told(e, err, false)
}

// A guest that names the run of another guest of the same plan, or says that it was asked for less, is held against what
// castellan asked of that very guest.
func TestAGuestsWordIsHeldAgainstItsOwnNote(t *testing.T) {
	c, e := liar(t, "castellan 1 result\nid\tp_1.5\nmode\tall\nbegan\t1796040000\nended\t1796040010\noutcome\tended\nexit\t0\nasked\tupgrade a:all 1 2 x\ndone\tupgrade a:all 1 2 -\ndatabase\tclean\nreboot\tno\n"+
		"before-unit\ta.service\tactive\trunning\t1\t0\nafter-unit\ta.service\tactive\trunning\t1\t0\nend\n")
	r := &Runner{channels: c}
	look := &task{r: r, o: opened{where: frame.CT, word: wordUpdates, vmid: 101, values: map[string][]string{"word": {"result"}}}, id: "p_1.6"}
	house := patch.House{Units: []patch.Unit{{Name: "a.service", Active: "active", Sub: "running", Enabled: true}}}
	for _, k := range []struct {
		name  string
		note  *before
		known bool
		why   string
	}{
		{"nothing is noted", nil, false, "own word only"},
		{"another guest's", &before{Guest: "site/102", Asked: []string{"upgrade a:all 1 2 x"}, House: house}, false, "own word only"},
		{"asked for more", &before{Guest: "site/101", Asked: []string{"upgrade a:all 1 2 x", "upgrade b:all 1 2 x"}, House: house}, true, "not done"},
		{"as it was", &before{Guest: "site/101", Asked: []string{"upgrade a:all 1 2 x"}, House: house}, true, ""},
	} {
		if k.note != nil {
			if err := c.Note(t.Context(), "p_1.5", *k.note); err != nil {
				t.Fatal(err)
			}
		}
		o, _, known, err := look.outcome(t.Context(), e, 20*time.Second)
		if err != nil || known != k.known || o.ID != "p_1.5" {
			t.Fatalf("%s: known %v %v, %+v", k.name, known, err, o)
		}
		res, err := look.result(t.Context(), e, 20*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		var o2 patch.Outcome
		if err := json.Unmarshal(res.Report, &o2); err != nil {
			t.Fatal(err)
		}
		ok, why := o2.Verdict()
		if ok != (k.why == "") || !strings.Contains(strings.Join(why, "; "), k.why) {
			t.Errorf("%s: %v %q", k.name, ok, why)
		}
	}
}

// What is no exact transaction is refused when it is planned, not first when it is sent.
func TestATransactionIsReadWhenItIsPlanned(t *testing.T) {
	l := lanesOf(t, LaneSettings{})
	for _, text := range []string{"", "upgrade a:all 1 1 x", "upgrade a:all\u00a01 2 x y", "upgrade a 1 2 x", "install a:all 1 2 x", "upgrade ../a:all 1 2 x", "upgrade -a:all 1 2 x", "upgrade a:all 1 2\nx y", "upgrade a:all 1 2 -"} {
		o := opened{where: frame.CT, word: wordUpgrade, node: "n", vmid: 101, values: map[string][]string{"mode": {"all"}, "package": {text}}}
		if said := l.judgePackages(t.Context(), "lab", o, configured{}, guest101); !strings.Contains(said.Refused, "read") {
			t.Errorf("%q: %+v", text, said)
		}
	}
	o := opened{where: frame.CT, word: wordUpgrade, node: "n", vmid: 101, values: map[string][]string{"mode": {"all"}, "package": {"upgrade a:all 1:2~x 2 x"}}}
	if said := l.judgePackages(t.Context(), "lab", o, configured{}, guest101); !strings.Contains(said.Refused, "no channels") {
		t.Errorf("%+v", said)
	}
}

// A machine with the guest's own hardware address answers, and another guest has that address too: nobody can tell which of them
// it was. It may have been started since it was looked at first.
func TestATwinAnswers(t *testing.T) {
	const mine = "02:00:00:00:00:01"
	base := "card\t" + mine + "\nsystem\tdebian\t12\tbookworm\tapt\tDebian\nboot\t11111111-2222-3333-4444-555555555555\nclock\t" + strconv.FormatInt(time.Now().Unix(), 10) + "\ndatabase\tclean\nreboot\tno\nautomatic\toff\n"
	for word, text := range map[string]string{
		"check":    base + "fresh\tyes\n",
		"status":   base,
		"services": "card\t" + mine + "\ninit\trunning\nunit\ta.service\tactive\trunning\t1\t0\n",
		"result":   "card\t" + mine + "\nid\tp_1.5\nmode\tall\nbegan\t1796040000\nended\t1796040010\noutcome\tended\nexit\t0\nasked\tupgrade a:all 1 2 x\ndone\tupgrade a:all 1 2 -\ndatabase\tclean\nreboot\tno\n",
	} {
		for _, k := range []struct {
			name   string
			twins  fixedTwins
			denied bool
			unread bool
		}{
			{"alone", fixedTwins{}, false, false},
			{"a twin", fixedTwins{shared: Shared{With: []string{"CT 890"}}}, true, false},
			{"settings not read", fixedTwins{shared: Shared{Unread: []string{"VM 105: got timeout"}}}, false, true},
			{"the site not read", fixedTwins{err: errors.New("no route")}, false, true},
		} {
			c, e := liar(t, "castellan 1 "+word+"\n"+text+"end\n")
			look := &task{r: &Runner{channels: c, twins: k.twins}, g: configured{cards: []string{mine}}, id: "p_1.6", o: opened{where: frame.CT, word: wordUpdates, vmid: 101, values: map[string][]string{"word": {word}}}}
			res, err := lookBy(t, look, word, e)
			var u *gate.UpstreamError
			switch {
			case k.denied && (!errors.As(err, &u) || u.Kind != gate.ErrDenied || u.Delivery != gate.NotCarriedOut || !strings.Contains(u.Message, "CT 890") || !strings.Contains(u.Hint, "castellan enrol 890")):
				t.Errorf("%s, %s: %v %s", word, k.name, err, res.Report)
			case !k.denied && (err != nil || strings.Contains(string(res.Report), "whether another guest has its hardware addresses") != k.unread):
				t.Errorf("%s, %s: %v %s", word, k.name, err, res.Report)
			}
		}
	}
}

// fixedTwins are the same whenever they are looked for.
type fixedTwins struct {
	shared Shared
	err    error
}

func (f fixedTwins) Twins(_ context.Context, _ string, vmid int, cards []string, _ bool) (Shared, error) {
	if vmid != 101 || len(cards) == 0 {
		return Shared{}, errors.New("asked for another guest")
	}
	return f.shared, f.err
}

// Nothing is put into a guest that has a twin, nor where it is not known whether it has one; what is out of sight is said.
func TestNothingIsInstalledInATwin(t *testing.T) {
	c, e := liar(t, "castellan 1 services\ncard\t"+strings.ToLower(testMAC)+"\ninit\trunning\nend\n")
	s := newSite()
	e.Site, e.Identity = s.name, channel.Identity{Root: testRoot, MAC: testMAC}
	if err := c.Keep(t.Context(), e, "p_0.2"); err != nil {
		t.Fatal(err)
	}
	for _, k := range []struct {
		twins fixedTwins
		kind  gate.ErrorKind
		says  string
	}{
		{fixedTwins{shared: Shared{With: []string{"VM 890", "VM 891"}}}, gate.ErrDenied, "VM 890, VM 891"},
		{fixedTwins{shared: Shared{Unread: []string{"VM 105: got timeout"}}}, gate.ErrUnavailable, "VM 105: got timeout"},
		{fixedTwins{err: errors.New("no route")}, gate.ErrUnavailable, "no route"},
	} {
		for word, params := range map[string]map[string][]string{
			"upgrade": {"mode": {"all"}, "package": {"upgrade a:all 1 2 x"}}, "repair": {}, "enrol": {"from": {"192.0.2.1"}}, "enrol, accepted": {"from": {"192.0.2.1"}, "way": {"accept"}},
		} {
			word, _, _ = strings.Cut(word, ",")
			r := &Runner{driver: s, channels: c, twins: k.twins}
			o := opened{where: frame.CT, node: "pve1", word: word, vmid: 101, values: params}
			g, err := r.look(t.Context(), "lab", o)
			if err != nil {
				t.Fatal(err)
			}
			_, err = r.packages(t.Context(), "lab", nil, o, g, "p_1.1", gate.RunHooks{})
			var u *gate.UpstreamError
			if !errors.As(err, &u) || u.Kind != k.kind || u.Delivery != gate.NotCarriedOut || !strings.Contains(u.Message, k.says) || !strings.Contains(u.Hint, "Nothing was changed") {
				t.Errorf("%s, %+v: %v", word, k.twins, err)
			}
		}
	}
	r := &Runner{driver: s, channels: c, twins: fixedTwins{shared: Shared{Unseen: []string{"node pve3 is offline: its 4 guests are unknown"}}}}
	o := opened{where: frame.CT, node: "pve1", word: wordUpdates, vmid: 101, values: map[string][]string{"word": {"services"}}}
	g, err := r.look(t.Context(), "lab", o)
	if err != nil {
		t.Fatal(err)
	}
	res, err := r.packages(t.Context(), "lab", nil, o, g, "p_1.1", gate.RunHooks{})
	if err != nil || !strings.Contains(res.Note, "node pve3 is offline") {
		t.Errorf("%+v %v", res, err)
	}
}
