package faults

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/nftables"
	"github.com/sluice-proxy/sluice/dataplane/nftables/wire"
	"github.com/sluice-proxy/sluice/service"
)

// plant is a node with a running proxy, whose every part can be tampered with.
type plant struct {
	*testing.T
	network *network
	// monitors and readers are apart from the proxy.
	monitors service.PerFamily[*monitor]
	readers  service.PerFamily[*nftables.Writer]
	// meddling counts what strangers do, twice each.
	meddling atomic.Int64
	// strikes counts what an interrupter does, twice each.
	strikes atomic.Int64
	// interrupter, if any, is told of the writes of its family.
	interrupter atomic.Pointer[interrupter]

	// transactionBytes is for the writers of the next process, quiet the number
	// of quiet Services that it finds.
	transactionBytes int
	quiet            int
	// watchEach, when set, lets the next process's notaries watch one of so many writes.
	watchEach int
	// spoiled says what the next process finds refused, by family.
	spoiled service.PerFamily[map[service.Key]venom]
	*process
}

// newPlant makes a node; start makes it serve.
func newPlant(t *testing.T) *plant {
	t.Helper()
	p := &plant{T: t, network: newNetwork(t), quiet: quietServices}
	for _, family := range service.Families {
		p.monitors[family] = newMonitor(t, p.network.node, family)
		reader := nftables.NewWriter(family, nftables.WriterConfig{Inside: p.network.node.Do})
		p.readers[family] = reader
		t.Cleanup(func() { check(t, reader.Close()) })
	}
	p.mustNFT(strangers)
	return p
}

// start runs a new proxy and waits until it serves the live Services.
func (p *plant) start() {
	p.Helper()
	began := time.Now()
	p.process = p.newProcess()
	for i, d := range p.domains {
		for _, s := range liveServices {
			if _, refused := p.spoiled[service.Families[i]][s.key()]; refused {
				continue
			}
			p.witness.await(p.T, "the first rules", began, applied(d.name, s.key()))
		}
	}
}

// stop ends the proxy.
func (p *plant) stop() {
	p.Helper()
	p.end(p.T)
}

// read gives what the kernel holds of a family.
func (p *plant) read(family service.Family) []dataplane.Object {
	p.Helper()
	objects, err := readWhole(p.Context(), p.readers[family])
	check(p, err)
	return objects
}

// readWhole reads until nobody changes anything meanwhile.
func readWhole(ctx context.Context, reader *nftables.Writer) ([]dataplane.Object, error) {
	for {
		objects, err := reader.Read(ctx)
		if !errors.Is(err, wire.ErrInterrupted) {
			return objects, err
		}
	}
}

// nft runs nft on the node as somebody else would, and gives what it printed.
func (p *plant) nft(commands string) (string, error) {
	p.meddling.Add(1)
	defer p.meddling.Add(1)
	return p.run(commands)
}

// ask runs nft for something that changes nothing.
func (p *plant) ask(commands string) string {
	p.Helper()
	for {
		said, err := p.run(commands)
		if err != nil && strings.Contains(err.Error(), unix.EINTR.Error()) {
			continue // the tables have changed while they were listed
		}
		check(p, err)
		return said
	}
}

func (p *plant) run(commands string) (string, error) {
	cmd := exec.Command("nft", "-f", "-")
	cmd.Stdin = strings.NewReader(commands)
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := p.network.node.Run(cmd); err != nil {
		return "", fmt.Errorf("nft: %s: %w: %s", commands, err, said.String())
	}
	return said.String(), nil
}

// mustNFT is nft for what has to work.
func (p *plant) mustNFT(commands string) string {
	p.Helper()
	said, err := p.nft(commands)
	check(p, err)
	return said
}

// table is a family's table in nft's words.
func table(family service.Family) string {
	return service.PerFamily[string]{service.IPv4: "ip ", service.IPv6: "ip6 "}[family] + nftables.TableName
}

// checkAdopted ends the proxy and starts another one over its rules: if it finds
// any difference, the first one's ledger or the kernel was wrong.
func (p *plant) checkAdopted() {
	p.Helper()
	p.stop()
	began := time.Now()
	p.start()
	for _, d := range p.domains {
		audit := p.witness.await(p.T, "the first audit", began, func(e aggregator.Event) bool {
			a, ok := e.(aggregator.AuditDone)
			return ok && a.Domain == d.name
		}).event.(aggregator.AuditDone)
		if audit.Err != nil || audit.Drift.Any() || audit.Drift.Equal == 0 {
			p.Errorf("%s: another proxy finds %+v, %v", d.name, audit.Drift, audit.Err)
		}
	}
}

// setPods gives a Service other endpoints, in both families.
func (p *plant) setPods(s liveService, pods ...int) {
	for _, family := range service.Families {
		p.cache.SetSlice(s.slice(family, pods...))
	}
}

// resize makes quiet Services come or go until there are so many.
func (p *plant) resize(quiet int) {
	if quiet > p.quiet {
		fillQuiet(p.cache, p.quiet, quiet)
	} else {
		// Before they go, for what goes is promised to nobody.
		for _, d := range p.domains {
			for n := quiet; n < p.quiet; n++ {
				d.poison.forget(quietKey(n))
			}
		}
		removeQuiet(p.cache, quiet, p.quiet)
	}
	p.quiet = quiet
}
