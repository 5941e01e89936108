package faults

import (
	"context"
	"slices"
	"testing"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/nftables"
	"github.com/sluice-proxy/sluice/service"
)

// domain is what one family's rules go through.
type domain struct {
	name    string
	poison  *poison
	notary  *notary
	sockets *switchboard
}

func (p *plant) newDomain(family service.Family) *domain {
	p.Helper()
	inside := p.network.node.Do
	features, err := nftables.Probe(family, inside)
	check(p, err)
	striking := func() *interrupter {
		if i := p.interrupter.Load(); i != nil && i.family == family {
			return i
		}
		return nil
	}
	sockets := &switchboard{}
	writer := nftables.NewWriter(family, nftables.WriterConfig{
		Inside: inside, Open: sockets.open, LateRelease: features.LateRelease,
		TransactionBytes: p.transactionBytes, Progress: func(landed, all int) {
			if i := striking(); i != nil {
				i.landed(landed, all)
			}
		},
	})
	poison := newPoison(nftables.NewRenderer(family, nftables.Options{MasqueradeBit: 14}))
	if p.process != nil {
		poison.external = p.domains[slices.Index(service.Families[:], family)].poison.external
	}
	for key, v := range p.spoiled[family] {
		poison.set(key, func(objects []dataplane.Object) []dataplane.Object { return v.spoil(poison, family, objects) })
	}
	return &domain{
		name: "nftables/" + family.String(), sockets: sockets, poison: poison,
		notary: &notary{
			Writer: writer, reader: nftables.NewWriter(family, nftables.WriterConfig{Inside: inside}),
			meddling: &p.meddling, compared: map[dataplane.Outcome]int{}, promises: poison.promises, each: max(1, p.watchEach),
			strangers: func() int64 { return p.meddling.Load() + p.strikes.Load() },
			before: func(ctx context.Context) context.Context {
				if i := striking(); i != nil {
					return i.begin(ctx)
				}
				return ctx
			},
		},
	}
}

// end fails for every receipt that was wrong.
func (d *domain) end(t *testing.T) {
	t.Helper()
	errs, compared := d.notary.objections()
	for _, err := range errs {
		t.Errorf("%s: a write and the kernel: %v", d.name, err)
	}
	d.notary.mu.Lock()
	watched := d.notary.watched
	d.notary.mu.Unlock()
	t.Logf("%s: Services compared before and after writes: %d", d.name, watched)
	if len(compared) > 0 {
		t.Logf("%s: receipts compared with the kernel: %v", d.name, compared)
	}
	d.close(t)
}

func (d *domain) close(t *testing.T) {
	t.Helper()
	check(t, d.notary.Close())
	check(t, d.notary.reader.Close())
}
