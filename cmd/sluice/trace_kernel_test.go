// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"encoding/json"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/internal/explain"
	"github.com/sluice-proxy/sluice/internal/terminal"
	"github.com/sluice-proxy/sluice/internal/trace"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/netnstest"
	"github.com/sluice-proxy/sluice/test/writertest"
)

// tracedNode is a node with a running proxy.
type tracedNode struct {
	*rulesNode
	fixture writertest.Fixture
	socket  string
	log     string
	family  string // nft's name
	// patience of the client.
	patience time.Duration
}

func newTracedNode(t *testing.T, family service.Family, w way) *tracedNode {
	t.Helper()
	f := writertest.NewFixture(family)
	n := &tracedNode{
		rulesNode: newRulesNode(t, f, w), fixture: f, patience: waitMax,
		family: map[service.Family]string{service.IPv4: "ip", service.IPv6: "ip6"}[family],
	}
	state := filepath.Join(t.TempDir(), "state")
	n.socket = filepath.Join(state, "sluice.sock")
	run := n.sluice("run", append(n.running, "--sluice-state-dir", state)...)
	n.log = filepath.Join(t.TempDir(), "log")
	run.Stderr = create(t, n.log)
	hold(t, n.network.Node(), run)
	for deadline := time.Now().Add(waitMax); ; time.Sleep(20 * time.Millisecond) {
		text, err := netnstest.Output(n.network.Node(), n.command("sluice", "get", "services", "--socket", n.socket))
		if err == nil && strings.Count(string(text), " applied ") == 2 {
			return n
		}
		if time.Now().After(deadline) {
			t.Fatalf("the proxy does not start: %v\n%s\n%s", err, text, n.printedLog())
		}
	}
}

// printedLog returns the log of the proxy.
func (n *tracedNode) printedLog() string {
	text, err := os.ReadFile(n.log)
	check(n.T, err)
	return string(text)
}

// web is the Service with an endpoint on another node.
func (n *tracedNode) web() netip.AddrPort { return netip.AddrPortFrom(n.fixture.ClusterIP, 80) }

// nft changes the tables of another program.
func (n *tracedNode) nft(input string) { n.inside(input, "nft", "-f", "-") }

// begin starts a trace, and returns it with its outputs when it has begun.
func (n *tracedNode) begin(from netip.Addr, to netip.AddrPort, more ...string) (cmd *exec.Cmd, printed, said io.Reader) {
	n.Helper()
	words := []string{"sluice", "trace", "--socket", n.socket, "--from", from.String(), "--to", to.String(), "-o", "json"}
	cmd = n.command(append(words, more...)...)
	problems, err := cmd.StderrPipe()
	check(n.T, err)
	printed, err = cmd.StdoutPipe()
	check(n.T, err)
	check(n.T, netnstest.Start(n.network.Node(), cmd))
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
	got := n.network.Ask(n.T, writertest.Question{From: client, To: to, Patience: n.patience})
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
	var table terminal.Page
	answer.Print(&table)
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

// ended fails unless a packet in a direction ended as described.
func (n *tracedNode) ended(a *trace.Answer, reply bool, verdict explain.Verdict, pattern string) {
	n.Helper()
	var seen []string
	for i := range a.Paths {
		p := &a.Paths[i]
		if p.Reply == reply && p.Verdict == verdict && regexp.MustCompile(pattern).MatchString(p.Conclusion) {
			return
		}
		seen = append(seen, p.Conclusion)
	}
	n.Errorf("no path with reply %v is %s and matches %q:\n%s", reply, verdict, pattern, strings.Join(seen, "\n"))
}

// differs fails unless the only difference matches the pattern; "" stands for none.
func (n *tracedNode) differs(a *trace.Answer, pattern string) {
	n.Helper()
	got := strings.Join(a.Explain.Differences, "\n")
	if a.Explain.Error != "" || (pattern == "") != (got == "") || !regexp.MustCompile(pattern).MatchString(got) {
		n.Errorf("compared with explain: %+v, want %q", a.Explain, pattern)
	}
}

// TestKernelTrace traces packets to Services that the proxy serves, through its tables and those of other programs.
func TestKernelTrace(t *testing.T) {
	for _, w := range ways(t) {
		for _, family := range service.Families {
			t.Run(w.domain+"/"+family.String(), func(t *testing.T) {
				t.Parallel()
				n := newTracedNode(t, family, w)
				n.traceServed()
				n.traceRejected()
				n.traceOthers()
				n.noTable()
				if log := n.printedLog(); strings.Contains(log, "another process") {
					t.Errorf("the proxy takes the trace for a change of its rules:\n%s", log)
				}
			})
		}
	}
}

// traceServed: the packet and the reply arrive, from a pod and from the node.
func (n *tracedNode) traceServed() {
	n.Helper()
	endpoint := regexp.QuoteMeta(netip.AddrPortFrom(n.fixture.B, 8080).String())
	for _, client := range []writertest.Client{writertest.FromPod, writertest.FromNode} {
		answer, got := n.trace(client, n.web())
		if got.Fate != writertest.Answered || answer.Incomplete {
			n.Errorf("%v: %v, incomplete: %v", client, got, answer.Incomplete)
		}
		n.differs(answer, "")
		n.ended(answer, false, explain.Delivered, "^delivered to "+endpoint+" through eth-n2, translated from ")
		if first := &answer.Paths[0]; !first.New || first.Reply || first.To != n.web().String() {
			n.Errorf("the first path is %+v", first)
		}
		back := "^delivered to .* through veth-pod, with the source "
		if client == writertest.FromNode {
			back = "^delivered to .* on this node, "
		}
		n.ended(answer, true, explain.Delivered, back)
	}
}

// traceRejected: the proxy rejects connections to a Service without endpoints.
func (n *tracedNode) traceRejected() {
	n.Helper()
	answer, got := n.trace(writertest.FromPod, netip.AddrPortFrom(n.fixture.OtherClusterIP, 80))
	if got.Fate != writertest.Refused || answer.Explain.Verdict != explain.Refused {
		n.Errorf("%v, explain: %s", got, answer.Explain.Verdict)
	}
	n.differs(answer, "")
	switch n.domain {
	case "nftables":
		n.ended(answer, false, explain.Refused, "^rejected by table "+n.family+" kube-proxy, chain reject-chain, rule 2$")
	case "iptables-nft":
		n.ended(answer, false, explain.Refused, "^rejected by table "+n.family+" filter, chain KUBE-SERVICES, rule 1$")
	default:
		n.ended(answer, false, trace.Lost, "^lost at hook forward: .*iptables-legacy")
	}
}

// traceOthers: a firewall drops packets by its policy, then rejects them by a rule, and then drops replies.
func (n *tracedNode) traceOthers() {
	n.Helper()
	n.patience = 250 * time.Millisecond
	n.nft(`table inet fw {
	chain forward {
		type filter hook forward priority 10; policy drop;
		tcp dport 81 counter accept
	}
}`)
	const other = ": a rule of another program, which explain does not consider$"
	answer, got := n.trace(writertest.FromPod, n.web())
	if got.Fate != writertest.Silent {
		n.Errorf("with a firewall: %v", got)
	}
	n.ended(answer, false, explain.Dropped, `^dropped by table inet fw, chain forward \(policy\)$`)
	n.differs(answer, `^explain predicts delivery to \S+, but the packet was dropped by table inet fw, chain forward \(policy\)`+other)

	n.nft("add rule inet fw forward tcp dport 8080 counter reject")
	answer, _ = n.trace(writertest.FromPod, n.web())
	n.ended(answer, false, explain.Refused, "^rejected by table inet fw, chain forward, rule 2$")
	n.differs(answer, "the packet was rejected by table inet fw, chain forward, rule 2"+other)

	n.nft("flush chain inet fw forward; add rule inet fw forward tcp dport 8080 accept")
	answer, _ = n.trace(writertest.FromPod, n.web())
	n.ended(answer, false, explain.Delivered, " through eth-n2")
	n.differs(answer, `the reply was dropped by table inet fw, chain forward \(policy\)`+other)
}

// TestKernelTrace_Killed: the kernel removes the table of a trace whose process is killed.
func TestKernelTrace_Killed(t *testing.T) {
	n := newTracedNode(t, service.IPv4, ways(t)[0])
	cmd, _, _ := n.begin(n.fixture.Pod, n.web(), "--for", "5m")
	tables := n.inside("", "nft", "list", "tables")
	if !strings.Contains(tables, "table ip sluice-trace-") {
		t.Errorf("tables during the trace:\n%s", tables)
	}
	check(t, cmd.Process.Kill())
	_ = cmd.Wait() // killed
	n.noTable()
}
