// Command bench measures what the README claims: each figure beside its baseline, medians of one run, as ratios. A missed
// bar is printed, never a failure.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"castellan/internal/catalog"
	"castellan/internal/catalog/facts"
	"castellan/internal/gate"
	"castellan/internal/lab"
	"castellan/internal/proxmox"
	"castellan/internal/seal"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "bench: give the castellan binary and the empty one")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// line prints one row of the table; bar is the ratio or figure that should hold.
func line(what, ours, baseline, result, bar string, ok bool) {
	verdict := "met"
	if !ok {
		verdict = "MISSED"
	}
	fmt.Printf("| %s | %s | %s | %s | %s | %s |\n", what, ours, baseline, result, bar, verdict)
}

func run(ours, empty string) error {
	dir, err := os.MkdirTemp("", "castellan-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	fmt.Printf("%s, %s, %d CPUs\n\n| what | castellan | baseline | result | bar | |\n| --- | --- | --- | --- | --- | --- |\n", cpuName(), runtime.Version(), runtime.NumCPU())
	if err := size(ours); err != nil {
		return err
	}
	small, stop, err := newSite(filepath.Join(dir, "small"), "small")
	if err != nil {
		return err
	}
	defer stop()
	if err := start(ours, empty, small); err != nil {
		return err
	}
	if err := governed(ours, small); err != nil {
		return err
	}
	large, stopLarge, err := newSite(filepath.Join(dir, "large"), "10000")
	if err != nil {
		return err
	}
	defer stopLarge()
	if err := listing(ours, large); err != nil {
		return err
	}
	if err := graph(large); err != nil {
		return err
	}
	if err := commands(); err != nil {
		return err
	}
	return channels()
}

func cpuName() string {
	b, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return runtime.GOARCH
	}
	for _, l := range strings.Split(string(b), "\n") {
		if name, ok := strings.CutPrefix(l, "model name"); ok {
			return strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(name), ":"))
		}
	}
	return runtime.GOARCH
}

func size(ours string) error {
	info, err := os.Stat(ours)
	if err != nil {
		return err
	}
	mb := float64(info.Size()) / 1e6
	line("stripped static binary", fmt.Sprintf("%.1f MB", mb), "", "", "≤ 25 MB", mb <= 25)
	return nil
}

type site struct {
	lab    *lab.Lab
	config string
	target proxmox.Target
}

func newSite(dir, name string) (*site, func(), error) {
	l, err := lab.New(lab.Config{Site: name, Facts: facts.Open()})
	if err != nil {
		return nil, nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	go func() { _ = l.Serve(ctx, listener) }() // ends with the program
	if err := os.MkdirAll(dir, 0o700); err != nil {
		stop()
		return nil, nil, err
	}
	token := filepath.Join(dir, "token")
	s := &site{lab: l, config: filepath.Join(dir, "castellan.toml"), target: proxmox.Target{Name: "lab", Kind: "pve", Addresses: []string{listener.Addr().String()},
		TokenFile: token, Pins: []string{l.Fingerprint()}}}
	text := fmt.Sprintf("[store]\nurl = %q\n[policy]\ncapabilities = [\"power\"]\n[[target]]\nname = \"lab\"\nkind = \"pve\"\naddresses = [%q]\ntoken_file = %q\npins = [%q]\n",
		filepath.Join(dir, "state", "castellan.db"), listener.Addr(), token, l.Fingerprint())
	if err := os.WriteFile(token, []byte(strings.TrimPrefix(l.Tokens()["admin"], "PVEAPIToken=")+"\n"), 0o600); err != nil {
		stop()
		return nil, nil, err
	}
	if err := os.WriteFile(s.config, []byte(text), 0o600); err != nil {
		stop()
		return nil, nil, err
	}
	if _, err := seal.CreateKeys(filepath.Join(dir, "keys")); err != nil {
		stop()
		return nil, nil, err
	}
	return s, stop, nil
}

// session is a raw MCP session over pipes, so that the client costs nothing.
type session struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
	id  int
}

func open(bin string, env []string, args ...string) (*session, error) {
	cmd := exec.Command(bin, args...)
	cmd.Env = append(os.Environ(), env...)
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	s := &session{cmd: cmd, in: in, out: bufio.NewReaderSize(out, 1<<20)}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	if _, err := s.call("initialize", `{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}`); err != nil {
		return nil, err
	}
	_, err = io.WriteString(in, `{"jsonrpc":"2.0","method":"notifications/initialized"}`+"\n")
	return s, err
}

func (s *session) call(method, params string) (json.RawMessage, error) {
	s.id++
	if _, err := fmt.Fprintf(s.in, `{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`+"\n", s.id, method, params); err != nil {
		return nil, err
	}
	for {
		b, err := s.out.ReadBytes('\n')
		if err != nil {
			return nil, fmt.Errorf("%s: %w", method, err)
		}
		var m struct {
			ID     int             `json:"id"`
			Result json.RawMessage `json:"result"`
			Error  json.RawMessage `json:"error"`
		}
		if err := json.Unmarshal(b, &m); err != nil {
			return nil, err
		}
		if m.ID == s.id {
			if m.Error != nil {
				return nil, fmt.Errorf("%s: %s", method, m.Error)
			}
			return m.Result, nil
		}
	}
}

func (s *session) close() { _ = s.in.Close(); _ = s.cmd.Wait() } // the exit code does not matter here

// rss is the resident memory in KiB.
func (s *session) rss() float64 {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	for _, l := range strings.Split(string(b), "\n") {
		if v, ok := strings.CutPrefix(l, "VmRSS:"); ok {
			n, _ := strconv.ParseFloat(strings.Fields(v)[0], 64) // 0 when the kernel says something else
			return n
		}
	}
	return 0
}

// cpu is the CPU time used so far.
func (s *session) cpu() time.Duration {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	u, _ := strconv.Atoi(f[11])
	k, _ := strconv.Atoi(f[12])
	return time.Duration(u+k) * 10 * time.Millisecond
}

func median(v []float64) float64 {
	slices.Sort(v)
	return v[len(v)/2]
}

func start(ours, empty string, s *site) error {
	env := []string{"CASTELLAN_CONFIG=" + s.config}
	warm, err := open(ours, env, "serve") // makes the store, so that the rest open an existing one
	if err != nil {
		return err
	}
	if _, err := warm.call("tools/call", `{"name":"list_nodes","arguments":{}}`); err != nil {
		return err
	}
	warm.close()
	var t, r [2][]float64
	for range 15 {
		for i, c := range []struct {
			bin  string
			args []string
		}{{ours, []string{"serve"}}, {empty, nil}} {
			began := time.Now()
			x, err := open(c.bin, env, c.args...)
			if err != nil {
				return err
			}
			if _, err := x.call("tools/list", `{}`); err != nil {
				return err
			}
			t[i] = append(t[i], time.Since(began).Seconds()*1000)
			time.Sleep(50 * time.Millisecond)
			r[i] = append(r[i], x.rss()/1024)
			x.close()
		}
	}
	a, b := median(t[0]), median(t[1])
	line("start to tools/list answered", fmt.Sprintf("%.0f ms", a), fmt.Sprintf("%.0f ms (empty server)", b), fmt.Sprintf("%.2f ×", a/b), "≤ 2 ×", a/b <= 2)
	a, b = median(r[0]), median(r[1])
	line("memory after tools/list", fmt.Sprintf("%.1f MiB", a), fmt.Sprintf("%.1f MiB (empty server)", b), fmt.Sprintf("%.2f ×", a/b), "≤ 1.5 ×", a/b <= 1.5)
	return nil
}

func governed(ours string, s *site) error {
	c, err := catalog.New(catalog.Config{Facts: facts.Open()})
	if err != nil {
		return err
	}
	client, err := proxmox.New(proxmox.Config{Settings: proxmox.Settings{Targets: []proxmox.Target{s.target}}, Catalog: c.Guide(), Secrets: seal.Open})
	if err != nil {
		return err
	}
	req, err := gate.NewRequest("pve", "GET /nodes/{node}/qemu/{vmid}/status/current", map[string]any{"node": "pve1", "vmid": "101"})
	if err != nil {
		return err
	}
	x, err := open(ours, []string{"CASTELLAN_CONFIG=" + s.config}, "serve")
	if err != nil {
		return err
	}
	defer x.close()
	call := `{"name":"call_operation","arguments":{"operation":"GET /nodes/{node}/qemu/{vmid}/status/current","params":{"node":"pve1","vmid":"101"}}}`
	var t [2][]float64
	for i := range 400 {
		began := time.Now()
		if _, err := client.Read(context.Background(), "lab", req); err != nil {
			return err
		}
		bare := time.Since(began)
		began = time.Now()
		if _, err := x.call("tools/call", call); err != nil {
			return err
		}
		if i >= 100 {
			t[1] = append(t[1], bare.Seconds()*1000)
			t[0] = append(t[0], time.Since(began).Seconds()*1000)
		}
	}
	a, b := median(t[0]), median(t[1])
	line("governed read over MCP", fmt.Sprintf("%.2f ms", a), fmt.Sprintf("%.2f ms (bare client)", b), fmt.Sprintf("+%.2f ms", a-b), "≤ +0.5 ms", a-b <= 0.5)
	return nil
}

func listing(ours string, s *site) error {
	x, err := open(ours, []string{"CASTELLAN_CONFIG=" + s.config}, "serve")
	if err != nil {
		return err
	}
	defer x.close()
	if _, err := x.call("tools/call", `{"name":"list_nodes","arguments":{"limit":1}}`); err != nil {
		return err
	}
	var cpu []float64
	var text json.RawMessage
	requests := 0
	for range 7 {
		s.lab.ResetRequests()
		before := x.cpu()
		for range 5 {
			if text, err = x.call("tools/call", `{"name":"list_guests","arguments":{}}`); err != nil {
				return err
			}
		}
		cpu = append(cpu, float64((x.cpu()-before).Milliseconds())/5)
		requests = len(s.lab.Requests()) / 5
	}
	var r struct {
		Content []struct {
			Text string `json:"text"`
		} `json:"content"`
	}
	if err := json.Unmarshal(text, &r); err != nil || len(r.Content) == 0 {
		return fmt.Errorf("read list_guests: %w", err)
	}
	n := len(r.Content[0].Text)
	line("list_guests of 10,000: API requests", strconv.Itoa(requests), "", "", "≤ 5", requests <= 5)
	line("list_guests of 10,000: first page", fmt.Sprintf("%d bytes", n), "", fmt.Sprintf("about %d tokens", n/3), "≤ 20,000 tokens", n/3 <= 20000)
	m := median(cpu)
	line("list_guests of 10,000: CPU", fmt.Sprintf("%.0f ms", m), "", "", "≤ 150 ms", m <= 150)
	return nil
}
