package harness

import (
	"errors"
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"github.com/sluice-proxy/sluice/internal/host/netns"
)

// The real tools in a namespace: traffic only makes counters grow, writing the same rule again is seen,
// and so is a change.
func TestRulesTellAWriteFromTraffic(t *testing.T) {
	host := &Host{Namespace: newNamespace(t, "n")}
	iptables := func(args ...string) { t.Helper(); feed(t, host, "", append([]string{"iptables"}, args...)...) }
	save := func() Rules { t.Helper(); return saveRules(t, host) }
	b, err := netns.StartBackend(host.Namespace, "b", netip.MustParseAddrPort("127.0.0.1:0"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	rule := []string{"-A", "OUTPUT", "-p", "tcp", "-m", "comment", "--comment", "mark", "-j", "ACCEPT"}
	iptables(rule...)
	ask := func() {
		t.Helper()
		if _, err := host.Ask(t.Context(), "tcp", b.Addr()); err != nil {
			t.Fatal(err)
		}
	}
	ask()
	first := save()
	if len(first.Containing("--comment mark")) != 1 || first.Counted() != 1 {
		t.Fatalf("after one connection: %+v", first)
	}
	gen := generation(t, host)
	ask()
	second := save()
	if err := second.Untouched(first); err != nil {
		t.Errorf("after more traffic: %v", err)
	}
	if now := generation(t, host); now != gen {
		t.Errorf("generation went from %d to %d without a write", gen, now)
	}

	iptables("-F", "OUTPUT")
	iptables(rule...)
	third := save()
	if err := third.Untouched(second); err == nil || !strings.Contains(err.Error(), "1 rules were written again") {
		t.Errorf("after the same rule was written again: %v", err)
	}
	if now := generation(t, host); now == gen {
		t.Errorf("generation is still %d after a write", gen)
	}
	for range 3 { // the counters grow beyond what they were; the handle still tells
		ask()
	}
	if err := save().Untouched(second); err == nil || !strings.Contains(err.Error(), "iptables-save filter -A OUTPUT had handles") {
		t.Errorf("after the same rule was written again and counted: %v", err)
	}
	iptables("-A", "OUTPUT", "-j", "RETURN")
	if err := save().Untouched(third); err == nil || !strings.Contains(err.Error(), "+ iptables-save filter -A OUTPUT -j RETURN") {
		t.Errorf("after a rule was added: %v", err)
	}
}

// feed runs a program inside a host with a text to read.
func feed(t *testing.T, h *Host, text string, words ...string) {
	t.Helper()
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Stdin = strings.NewReader(text)
	if _, err := h.Output(cmd); err != nil {
		var failed *exec.ExitError
		if errors.As(err, &failed) {
			t.Fatalf("%s: %v: %s", strings.Join(words, " "), err, failed.Stderr)
		}
		t.Fatalf("%s: %v", strings.Join(words, " "), err)
	}
}

func saveRules(t *testing.T, h *Host) Rules {
	t.Helper()
	r, err := SaveRules(h)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func generation(t *testing.T, h *Host) uint32 {
	t.Helper()
	gen, err := Generation(h)
	if err != nil {
		t.Fatal(err)
	}
	return gen
}

// What is there before stays when somebody adds rules around it; a rule that is written again, or is gone,
// did not stay.
func TestRulesKeepWhatWasThere(t *testing.T) {
	host := &Host{Namespace: newNamespace(t, "n")}
	feed(t, host, "", "iptables", "-A", "INPUT", "-p", "tcp", "-j", "ACCEPT")
	feed(t, host, "", "iptables", "-A", "INPUT", "-p", "udp", "-j", "ACCEPT")
	before := saveRules(t, host)

	feed(t, host, "", "iptables", "-N", "MINE")
	feed(t, host, "", "iptables", "-I", "INPUT", "2", "-j", "MINE")
	feed(t, host, "add table ip mine", "nft", "-f", "-")
	around := saveRules(t, host)
	if err := around.Keep(before); err != nil {
		t.Errorf("after rules were added around: %v", err)
	}
	if got := len(around.Beyond(before)); got != 3 {
		t.Errorf("%d lines are new, want 3: %q", got, around.Beyond(before))
	}
	if got := before.Beyond(before); len(got) > 0 {
		t.Errorf("lines beyond themselves: %q", got)
	}

	feed(t, host, "", "iptables", "-D", "INPUT", "1")
	if err := saveRules(t, host).Keep(before); err == nil || !strings.Contains(err.Error(), "- iptables-save filter -A INPUT -p tcp -j ACCEPT") {
		t.Errorf("after a rule was removed: %v", err)
	}
	feed(t, host, "", "iptables", "-I", "INPUT", "-p", "tcp", "-j", "ACCEPT")
	if err := saveRules(t, host).Keep(before); err == nil || !strings.Contains(err.Error(), "written again: iptables-save filter -A INPUT") {
		t.Errorf("after the rule was written again: %v", err)
	}
}
