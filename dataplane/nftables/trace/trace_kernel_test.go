// SPDX-License-Identifier: Apache-2.0

package trace_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/dataplane/nftables/trace"
	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/netnstest"
	"github.com/sluice-proxy/sluice/test/testenv"
)

var flow = trace.Flow{From: netip.MustParseAddrPort("127.0.0.1:0"), To: netip.MustParseAddrPort("127.0.0.1:5000"), Protocol: service.UDP}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// record traces the flow while send runs.
func record(t *testing.T, node *netns.Namespace, send func()) *trace.Record {
	t.Helper()
	return recordBy(t, trace.Run, node, send)
}

type tracer func(ctx context.Context, flow trace.Flow, ready func()) (*trace.Record, error)

// recordBy traces the flow with run while send runs.
func recordBy(t *testing.T, run tracer, node *netns.Namespace, send func()) (r *trace.Record) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), testenv.Patience)
	defer stop()
	var sending sync.WaitGroup
	check(t, node.Do(func() (err error) {
		r, err = run(ctx, flow, func() {
			sending.Go(func() {
				send()
				stop()
			})
		})
		return err
	}))
	sending.Wait()
	return r
}

// datagrams sends datagrams from separate sockets on the loopback interface.
func datagrams(t *testing.T, node *netns.Namespace, count int, pause time.Duration) {
	for range count {
		conn, err := netnstest.DialFrom(t.Context(), node, "udp", netip.AddrPortFrom(flow.From.Addr(), 0), flow.To.String())
		if err == nil {
			_, err = conn.Write([]byte("?"))
			err = errors.Join(err, conn.Close())
		}
		if err != nil {
			t.Error(err)
			return
		}
		time.Sleep(pause)
	}
}

func listen(t *testing.T, node *netns.Namespace) net.PacketConn {
	t.Helper()
	socket, err := node.ListenPacket("udp", flow.To.String())
	check(t, err)
	t.Cleanup(func() { _ = socket.Close() })
	return socket
}

// TestKernelTrace_Loopback follows one datagram out of the node and in again. A node without address translation gets
// no connection tracking.
func TestKernelTrace_Loopback(t *testing.T) {
	node := netnstest.New(t, "node")
	listen(t, node)
	r := record(t, node, func() { datagrams(t, node, 1, 0) })
	if len(r.Packets) != 2 || r.Lost || r.Full || r.Replies {
		t.Fatalf("record %+v", r)
	}
	out, in := r.Packets[0], r.Packets[1]
	if out.Hook != "postrouting" || !out.Passed || out.Out != "lo" || in.Hook != "input" || !in.Passed || in.In != "lo" || out.First != in.First {
		t.Errorf("out %+v\nin %+v", out, in)
	}
	if count, err := netnstest.ReadSysctl(node, "net.netfilter.nf_conntrack_count"); err != nil || strings.TrimSpace(count) != "0" {
		t.Errorf("tracked connections: %q, %v", count, err)
	}
}

// TestKernelTrace_TranslatedLoopback: a trace finds the chain of the node that drops a translated packet after the
// loopback interface.
func TestKernelTrace_TranslatedLoopback(t *testing.T) {
	node := netnstest.New(t, "node")
	load := exec.Command("nft", "-f", "-")
	load.Stdin = strings.NewReader(`table ip translate {
	chain output {
		type nat hook output priority -100; policy accept;
		udp dport 5000 dnat to 127.0.0.1:5001
	}
	chain input {
		type filter hook input priority 0; policy accept;
		udp dport 5001 drop
	}
}`)
	if out, err := netnstest.Output(node, load); err != nil {
		t.Fatalf("%v: %s (Debian package nftables)", err, out)
	}
	r := record(t, node, func() { datagrams(t, node, 1, 0) })
	if len(r.Packets) != 2 || !r.Replies || !r.Packets[0].New {
		t.Fatalf("record %+v", r)
	}
	steps := r.Packets[1].Steps
	if to := r.Packets[1].First.To.String(); to != "127.0.0.1:5001" || len(steps) != 1 || steps[0] != (trace.Step{
		Hook: "input", Table: "ip translate", Chain: "input", Rule: 1, Handle: steps[0].Handle, Verdict: "drop", Text: "meta l4proto udp th dport 5001 drop",
	}) {
		t.Errorf("to %s: %+v", to, steps)
	}
}

// TestKernelTrace_Limits: a flood is traced at the allowed rate, and a long trace ends at its limit.
func TestKernelTrace_Limits(t *testing.T) {
	node := netnstest.New(t, "node")
	listen(t, node)
	r := record(t, node, func() { datagrams(t, node, 500, 0) })
	if most := 2 * (6 + 10*int(r.Duration/time.Second+1)); len(r.Packets) < 8 || len(r.Packets) > most {
		t.Errorf("%d packets in %v, want at most %d", len(r.Packets), r.Duration, most)
	}
	r = recordBy(t, trace.RunAt(200), node, func() { datagrams(t, node, 240, 3*time.Millisecond) })
	if !r.Full || len(r.Packets) < 95 || len(r.Packets) > 200 { // some more than 100 come until the selection ends
		t.Errorf("%d packets in %v, full %v", len(r.Packets), r.Duration, r.Full)
	}
}

// TestKernelTrace_Concurrent: simultaneous traces of one node do not affect each other, and leave no table.
func TestKernelTrace_Concurrent(t *testing.T) {
	node := netnstest.New(t, "node")
	listen(t, node)
	var inner *trace.Record
	outer := record(t, node, func() {
		inner = record(t, node, func() { datagrams(t, node, 1, 0) })
	})
	for _, r := range []*trace.Record{outer, inner} {
		if len(r.Packets) != 2 || len(r.Packets[0].Steps) != 0 {
			t.Errorf("packets: %+v", r.Packets)
		}
	}
	list, err := netnstest.Output(node, exec.Command("nft", "list", "tables"))
	if err != nil || strings.TrimSpace(string(list)) != "" {
		t.Errorf("tables: %s, %v", list, err)
	}
}
