package nftables_test

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/nftables"
	"github.com/sluice-proxy/sluice/service"
)

// TestOneTransactionInBothFamiliesIsHeardByBoth: the kernel announces what a
// transaction changes in several families in the same datagram, which belongs to
// all of them. (Seen as an IPv6 Service that stayed away for half a minute after
// a script had deleted something of both families.)
func TestOneTransactionInBothFamiliesIsHeardByBoth(t *testing.T) {
	ipv4 := newWorld(t, service.IPv4, nftables.WriterConfig{})
	ipv6 := newWorld(t, service.IPv6, nftables.WriterConfig{})
	// Both are on the first one's node.
	ipv6.node = ipv4.node
	ipv6.restart(nftables.WriterConfig{})
	worlds := service.PerFamily[*world]{ipv4, ipv6}
	var heard service.PerFamily[chan time.Time]
	for family, w := range worlds {
		w.commit()
		heard[family] = make(chan time.Time, 10000)
		go func() { _ = w.writer.Watch(t.Context(), func(dataplane.Stranger) { heard[family] <- time.Now() }) }()
		w.watched(heard[family])
		w.audit()
		w.commit()
	}
	// Two families one after the other, and many messages of one before those of
	// the other: the kernel fills its datagrams as far as they go.
	for _, change := range []string{
		"add element ip kube-proxy active-cluster-ips { 192.0.2.1 }; add element ip6 kube-proxy active-cluster-ips { fd00::1 }",
		"add chain inet other c; add element ip6 kube-proxy active-cluster-ips { fd00::2 }; add element ip kube-proxy active-cluster-ips { 192.0.2.2 }",
		"add element ip kube-proxy active-cluster-ips { 192.0.3.1, 192.0.3.2, 192.0.3.3, 192.0.3.4, 192.0.3.5 }; add element ip6 kube-proxy active-cluster-ips { fd00::3 }",
	} {
		drain(heard[:]...)
		ipv4.nft("add table inet other; "+change, "-f", "-")
		for family, w := range worlds {
			select {
			case <-heard[family]:
			case <-time.After(time.Second):
				t.Errorf("%v: %q was not heard", service.Family(family), change)
			}
			w.audit()
			w.commit()
		}
	}
	// What one writer does to its table does not concern the other.
	drain(heard[:]...)
	for n := range 300 {
		ipv4.serve(plain(n, 5, 0))
	}
	ipv4.commit()
	time.Sleep(50 * time.Millisecond)
	if n := len(heard[service.IPv6]); n > 0 {
		t.Errorf("IPv6 heard %d messages about a change of the IPv4 table", n)
	}
}

func drain(channels ...chan time.Time) {
	for _, c := range channels {
		for len(c) > 0 {
			<-c
		}
	}
}

// TestListeningWithLittleMemory: before 6.7, Linux grants a socket's filter a sixth of
// what it grants now, which was too little for ours, so that Watch failed and strangers'
// changes waited for the audit. With still less, the filter is a lesser one.
func TestListeningWithLittleMemory(t *testing.T) {
	const old, little = "20480", "1024"
	for _, granted := range []string{old, little} {
		t.Run(granted, func(t *testing.T) {
			w := newWorld(t, service.IPv4, nftables.WriterConfig{})
			w.grant(granted)
			w.commit()
			heard := make(chan time.Time, 1000)
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- w.writer.Watch(ctx, func(dataplane.Stranger) { heard <- time.Now() }) }()
			select {
			case err := <-ended:
				t.Fatalf("with %s bytes: %v", granted, err)
			case <-time.After(100 * time.Millisecond):
			}
			w.watched(heard)
			w.hears(heard, "flush chain "+w.table()+" services")
			w.audit()
			w.commit()
			w.nft("add table ip6 kube-proxy; add chain ip6 kube-proxy c; delete table ip6 kube-proxy", "-f", "-")
			w.hearsNothing(heard)
			cancel()
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Errorf("Watch ended with %v", err)
			}
		})
	}
}

// grant sets how much memory a socket's options may take. Older kernels have one such
// limit for the machine, which stays as it is.
func (w *world) grant(bytes string) {
	w.Helper()
	if err := w.node.Sysctl("net.core.optmem_max", bytes); err != nil && !errors.Is(err, os.ErrNotExist) {
		w.Fatal(err)
	}
}
