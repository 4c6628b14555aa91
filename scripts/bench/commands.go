package main

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"time"
)

// commands measures what the bridge adds to a command in a container, on a real sshd and a real container: the test that
// drives them prints the figures. Without root, or what makes containers, it says so.
func commands() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, "go", "test", "-count=1", "-v", "-run", "^TestRealSpeed$", "./internal/guest").CombinedOutput()
	if err != nil {
		return fmt.Errorf("measure commands: %w: %s", err, out)
	}
	found := map[string][2]float64{}
	for _, m := range regexp.MustCompile(`figure (\w+) ([\d.]+) ([\d.]+)`).FindAllSubmatch(out, -1) {
		ours, _ := strconv.ParseFloat(string(m[2]), 64) // the expression lets only numbers through
		bare, _ := strconv.ParseFloat(string(m[3]), 64)
		found[string(m[1])] = [2]float64{ours, bare}
	}
	if len(found) == 0 {
		fmt.Println("| commands through the bridge | not measured: it takes root, lxc and mmdebstrap |  |  |  |  |")
		return nil
	}
	p, f := found["probe_ms"], found["fifty_s"]
	line("command in a container over a kept connection", fmt.Sprintf("%.1f ms", p[0]), fmt.Sprintf("%.1f ms (entered on the node)", p[1]), fmt.Sprintf("%+.1f ms", p[0]-p[1]), "≤ +30 ms", p[0]-p[1] <= 30)
	line("50 commands at once to 4 guests that sleep 1 s", fmt.Sprintf("%.2f s", f[0]), fmt.Sprintf("%.2f s (entered on the node)", f[1]), fmt.Sprintf("%.2f ×", f[0]/f[1]), "≤ 2 s", f[0] <= 2)
	return nil
}

// channels measures what a word over a channel into a guest costs castellan; the servers are of the same process, so its
// processor time is more than castellan's own.
func channels() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, "go", "test", "-count=1", "-v", "-run", "^TestSpeed$", "./internal/channel").CombinedOutput()
	if err != nil {
		return fmt.Errorf("measure channels: %w: %s", err, out)
	}
	m := regexp.MustCompile(`figure channels ([\d.]+) ([\d.]+)`).FindSubmatch(out)
	if m == nil {
		fmt.Println("| channels into guests | not measured here |  |  |  |  |")
		return nil
	}
	cpu, _ := strconv.ParseFloat(string(m[1]), 64) // the expression lets only numbers through
	took, _ := strconv.ParseFloat(string(m[2]), 64)
	line("processor time of a check over a channel, both ends", fmt.Sprintf("%.2f ms", cpu), "", "", "≤ 5 ms", cpu <= 5)
	line("50 checks at once over channels to 3 guests that sleep 1 s", fmt.Sprintf("%.2f s", took), "1 s", "", "≤ 2 s", took <= 2)
	return nil
}
