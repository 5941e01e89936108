package main

import (
	"bufio"
	"encoding/json"
	"io"
	"net/netip"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/internal/explain"
	"github.com/sluice-proxy/sluice/internal/trace"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/writertest"
)

// tracedNode is a node with a running proxy.
type tracedNode struct {
	*rulesNode
	fixture writertest.Fixture
	socket  string
	family  string // nft's name
}

func newTracedNode(t *testing.T, family service.Family, w way) *tracedNode {
	t.Helper()
	f := writertest.NewFixture(family)
	n := &tracedNode{rulesNode: newRulesNode(t, f, w), fixture: f, family: map[service.Family]string{service.IPv4: "ip", service.IPv6: "ip6"}[family]}
	state := filepath.Join(t.TempDir(), "state")
	n.socket = filepath.Join(state, "sluice.sock")
	run := n.sluice("run", append(n.running, "--sluice-state-dir", state)...)
	log := filepath.Join(t.TempDir(), "log")
	run.Stderr = create(t, log)
	hold(t, n.network.Node(), run)
	for deadline := time.Now().Add(waitMax); ; time.Sleep(20 * time.Millisecond) {
		status := n.command("sluice", "status", "--socket", n.socket)
		text, err := n.network.Node().Output(status)
		if err == nil && strings.Contains(string(text), "Health: no problems") {
			return n
		}
		if time.Now().After(deadline) {
			t.Fatalf("the proxy does not start: %v\n%s\n%s", err, text, log)
		}
	}
}

// command returns a trace that has begun, with its standard output.
func (n *tracedNode) begin(from netip.Addr, to netip.AddrPort, more ...string) (cmd *exec.Cmd, printed, said io.Reader) {
	n.Helper()
	words := []string{"sluice", "trace", "--socket", n.socket, "--from", from.String(), "--to", to.String(), "-o", "json"}
	cmd = n.command(append(words, more...)...)
	problems, err := cmd.StderrPipe()
	check(n.T, err)
	printed, err = cmd.StdoutPipe()
	check(n.T, err)
	check(n.T, n.network.Node().Start(cmd))
	n.Cleanup(func() { _ = cmd.Process.Kill() })
	lines := bufio.NewReader(problems)
	line, err := lines.ReadString('\n')
	if err != nil || !strings.HasPrefix(line, "Tracing for ") {
		n.Fatalf("the trace says %q, %v", line, err)
	}
	return cmd, printed, lines
}

// trace traces one connection.
func (n *tracedNode) trace(client writertest.Client, to netip.AddrPort) (*trace.Answer, writertest.Answer) {
	n.Helper()
	from := map[writertest.Client]netip.Addr{
		writertest.FromPod: n.fixture.Pod, writertest.FromNode: n.fixture.Node, writertest.FromStranger: n.fixture.ForeignProcess,
	}[client]
	cmd, printed, said := n.begin(from, to, "--for", "30s")
	got := n.network.Ask(n.T, writertest.Question{From: client, To: to, Patience: time.Second})
	time.Sleep(50 * time.Millisecond)
	check(n.T, cmd.Process.Signal(syscall.SIGINT))
	text, err := io.ReadAll(printed)
	check(n.T, err)
	problems, err := io.ReadAll(said)
	check(n.T, err)
	if err := cmd.Wait(); err != nil {
		n.Fatalf("%v: %s", err, problems)
	}
	answer := new(trace.Answer)
	if err := json.Unmarshal(text, answer); err != nil {
		n.Fatalf("%v\n%s", err, text)
	}
	var table strings.Builder
	check(n.T, answer.Print(&table))
	n.Logf("%s", table.String())
	return answer, got
}

// noTable fails unless all tables of traces are removed.
func (n *tracedNode) noTable() {
	n.Helper()
	if tables := n.inside("", "nft", "list", "tables"); strings.Contains(tables, "sluice-trace") {
		n.Errorf("tables after the trace:\n%s", tables)
	}
}

// one returns the only path in a direction that has a verdict, among possible others.
func one(t *testing.T, a *trace.Answer, reply bool, verdict explain.Verdict) *trace.Path {
	t.Helper()
	for i := range a.Paths {
		if p := &a.Paths[i]; p.Reply == reply && p.Verdict == verdict {
			return p
		}
	}
	t.Fatalf("no path with reply %v is %s", reply, verdict)
	return nil
}

func TestKernelTrace(t *testing.T) {
	for _, w := range ways() {
		for _, family := range service.Families {
			t.Run(w.domain+"/"+family.String(), func(t *testing.T) {
				n := newTracedNode(t, family, w)
				n.traceServed()
			})
		}
	}
}

func (n *tracedNode) traceServed() {
	web := netip.AddrPortFrom(n.fixture.ClusterIP, 80)
	answer, _ := n.trace(writertest.FromPod, web)
	_ = answer
	answer, _ = n.trace(writertest.FromNode, web)
	answer, _ = n.trace(writertest.FromPod, netip.AddrPortFrom(n.fixture.OtherClusterIP, 80))
	n.inside("", "nft", "add table inet fw; add chain inet fw forward { type filter hook forward priority filter + 10; policy drop; }; add rule inet fw forward tcp dport 81 counter accept")
	answer, _ = n.trace(writertest.FromPod, web)
	n.inside("", "nft", "insert rule inet fw forward tcp dport 8080 counter reject")
	answer, _ = n.trace(writertest.FromPod, web)
	n.noTable()
}
