package faults

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/aggregator"
	nftkernel "github.com/sluice-proxy/sluice/dataplane/nftables/kernel"
	nftrender "github.com/sluice-proxy/sluice/dataplane/nftables/render"
	"github.com/sluice-proxy/sluice/observe"
	"github.com/sluice-proxy/sluice/proxy"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source"
)

// sender is a UDP client that keeps sending from one port, with or without answers.
type sender struct {
	conn           net.Conn
	sent, answered atomic.Int64
}

func (p *proxyNode) startSender(to target) *sender {
	p.Helper()
	conn, err := p.network.client.DialContext(p.Context(), "udp", to.addr().String())
	check(p, err)
	s := &sender{conn: conn}
	p.Cleanup(func() { check(p, conn.Close()) })
	ctx, cancel := context.WithCancel(p.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			_, _ = conn.Write([]byte("?")) // may report that an earlier one was rejected
			s.sent.Add(1)
			_ = conn.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
			var said [128]byte
			if _, err := conn.Read(said[:]); err == nil {
				s.answered.Add(1)
			}
		}
	}()
	p.Cleanup(func() { cancel(); <-ended })
	return s
}

// senders starts several, and returns when each has sent.
func (p *proxyNode) senders(to target) []*sender {
	p.Helper()
	var all []*sender
	for range 6 {
		all = append(all, p.startSender(to))
	}
	for _, s := range all {
		p.wait("a datagram is sent", func() bool { return s.sent.Load() > 1 })
	}
	return all
}

func (p *proxyNode) wait(what string, done func() bool) {
	p.Helper()
	for began := time.Now(); !done(); time.Sleep(time.Millisecond) {
		if time.Since(began) > eventMax {
			p.Fatalf("timed out: %s", what)
		}
	}
}

// awaitAnswers waits until each has received several answers.
func (p *proxyNode) awaitAnswers(all []*sender, what string) {
	p.Helper()
	began, slowest := time.Now(), 0
	for i, s := range all {
		heard := s.answered.Load()
		for s.answered.Load() < heard+3 {
			if time.Since(began) > eventMax {
				p.Fatalf("%s: client %d has sent %d datagrams and heard %d answers", what, i, s.sent.Load(), s.answered.Load())
			}
			time.Sleep(time.Millisecond)
			slowest = i
		}
	}
	p.Logf("%s: %d clients answered within %.1f ms (the last was number %d)", what, len(all), ms(time.Since(began)), slowest)
}

// TestUDPClientsThatBeginWithoutRules: a client that begins to send while the rules are gone, and
// goes on without a pause, is answered once they are back. Otherwise the kernel would not translate
// its packets for as long as it sends.
func TestUDPClientsThatBeginWithoutRules(t *testing.T) {
	t.Parallel()
	p := newProxyNode(t)
	p.start()
	for i, everything := range prefixes("0.0.0.0/0", "::/0") {
		// Without a route, the kernel does not track the packets.
		check(t, p.network.node.AddRoute(everything, pair.pod(service.Families[i], 0)))
	}
	for _, family := range service.Families {
		to := target{trio, family, "udp", clusterIP}
		early := p.senders(to)
		p.awaitAnswers(early, family.String()+", with rules")
		var untranslated []*sender
		deleted, begun := make(chan struct{}), make(chan struct{})
		p.domains[family].writer.onceRead(func() {
			<-deleted                    // an ordinary audit may have begun just before
			untranslated = p.senders(to) // the repair waits for this
			close(begun)
		})
		began := time.Now()
		p.mustNFT(inTable("delete table TABLE", family))
		close(deleted)
		<-begun
		for i, s := range untranslated {
			if s.answered.Load() > 0 {
				t.Fatalf("%s: client %d is answered without rules", family, i)
			}
		}
		repaired := p.events.await(t, "a repair", began, func(e aggregator.Event) bool {
			r, ok := e.(aggregator.Repaired)
			return ok && r.Domain == p.domains[family].name
		})
		if r := repaired.event.(aggregator.Repaired); r.Repairs != 1 || r.Objects == 0 || r.Took <= 0 {
			t.Errorf("%s: %+v", family, r)
		}
		p.awaitAnswers(untranslated, family.String()+", begun without rules")
		p.awaitAnswers(early, family.String()+", begun before")
	}
	p.stop()
	p.mustNFT(inTable("delete table TABLE", service.IPv4) + "; " + inTable("delete table TABLE", service.IPv6))
	var untranslated []*sender
	for _, family := range service.Families {
		untranslated = append(untranslated, p.senders(target{trio, family, "udp", clusterIP})...)
	}
	p.start()
	p.awaitAnswers(untranslated, "begun without rules and without a proxy")
	p.stop()
}

// TestTwoProxiesOfDifferentOpinions: each proxy undoes the other's writes. Without growing pauses,
// they would do so about 500 times a second. Each reports the other by name.
func TestTwoProxiesOfDifferentOpinions(t *testing.T) {
	t.Parallel()
	p := newProxyNode(t)
	p.start()
	var domains []proxy.Domain
	for _, family := range service.Families {
		writer := nftkernel.NewWriter(family, nftkernel.WriterConfig{Inside: p.network.node.Do})
		domains = append(domains, proxy.Domain{Name: "rival/" + family.String(), Family: family, Writer: writer,
			Renderer: nftrender.NewRenderer(family, nftrender.Options{MasqueradeBit: 11})})
	}
	heard := &eventLog{}
	rival, err := proxy.New(proxy.Config{
		Node: proxy.NodeSettings{Name: "node"}, Domains: domains, Listeners: []observe.Listener{heard},
		Source: func(ctx context.Context, cache *source.Cache) error {
			fill(cache, p.quiet)
			cache.Prime()
			<-ctx.Done()
			return nil
		},
	})
	check(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	began := time.Now()
	go func() { ended <- rival.Run(ctx) }()
	time.Sleep(5 * time.Second)
	audited := func(e aggregator.Event) bool { _, ok := e.(aggregator.AuditDone); return ok }
	warned := func(e aggregator.Event) bool {
		b, ok := e.(aggregator.RepairBegan)
		return ok && b.By.PID != 0 && b.By.Command != ""
	}
	for name, w := range map[string]*eventLog{"first": p.events, "second": heard} {
		audits, warnings := w.count(began, audited), w.count(began, warned)
		t.Logf("the %s: %d audits and %d warnings in 5 s, both families", name, audits, warnings)
		// Two families, at most four or five rounds of both proxies, and some overlap.
		if audits > 60 || warnings == 0 || warnings > 30 {
			t.Errorf("the %s: %d audits and %d warnings in 5 s", name, audits, warnings)
		}
	}
	cancel()
	check(t, <-ended)
	p.stop()
}
