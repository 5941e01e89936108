// SPDX-License-Identifier: Apache-2.0

package cleaner

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane/conntrack"
	"github.com/sluice-proxy/sluice/service"
)

// fake is a kernel of one family in memory. Its identities are the flows' names.
type fake struct {
	mu    sync.Mutex
	held  map[string]flow
	asked []filter
	// old makes it ignore filters.
	old bool
	// host are the addresses of the host.
	host []netip.Addr
	// listing and removing, if set, are called for each attempt with its number from 1. An
	// error makes the attempt fail half-way.
	listing  func(n int) error
	removing func(n int, name string) error
	listings int
	removals int
}

func newFake() *fake { return &fake{held: map[string]flow{}} }

// add puts a flow into the table, from texts.
func (f *fake) add(name, destination, answerer string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.held[name] = *flowOf(name, unix.IPPROTO_UDP, destination, answerer)
}

// flowOf is a flow, from texts.
func flowOf(name string, protocol uint8, destination, answerer string) *flow {
	return &flow{
		Connection:  conntrack.Connection{Protocol: protocol, To: at(destination), Answerer: at(answerer)},
		Description: []byte(name),
	}
}

// names returns the names of the flows in the table, sorted.
func (f *fake) names() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.sorted()
}

func (f *fake) sorted() []string {
	names := []string{}
	for name := range f.held {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func (f *fake) Each(ctx context.Context, only filter, each func(*flow) error) (bool, error) {
	f.mu.Lock()
	f.listings++
	f.asked = append(f.asked, only)
	n, names, fails := f.listings, f.sorted(), f.listing
	f.mu.Unlock()
	if fails != nil {
		if err := fails(n); err != nil {
			return false, err
		}
		names = f.names() // what began meanwhile is listed, too
	}
	honoured := true
	for _, name := range names {
		f.mu.Lock()
		shown := f.held[name]
		f.mu.Unlock()
		if !only.Lets(&shown) {
			if !f.old {
				continue
			}
			honoured = false
		}
		if err := each(&shown); err != nil {
			return honoured, err
		}
	}
	return honoured, ctx.Err()
}

func (f *fake) Delete(identities []conntrack.Description) ([]error, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.removals++
	outcomes := make([]error, len(identities))
	for i, identity := range identities {
		name := string(identity)
		if _, there := f.held[name]; !there {
			outcomes[i] = conntrack.ErrGone
			continue
		}
		if f.removing != nil {
			if outcomes[i] = f.removing(f.removals, name); outcomes[i] != nil {
				continue
			}
		}
		delete(f.held, name)
	}
	return outcomes, nil
}

func (f *fake) Addresses() ([]netip.Addr, error) { return f.host, nil }

func (f *fake) Close() error { return nil }

// at reads an address and port; ":53" is a node port.
func at(text string) netip.AddrPort {
	if text[0] == ':' {
		return netip.AddrPortFrom(netip.Addr{}, netip.MustParseAddrPort("0.0.0.0"+text).Port())
	}
	return netip.MustParseAddrPort(text)
}

func ats(texts ...string) []netip.AddrPort {
	var all []netip.AddrPort
	for _, text := range texts {
		all = append(all, at(text))
	}
	return all
}

// to is a destination of UDP.
func to(text string) destination {
	a := at(text)
	return destination{Addr: a.Addr(), Port: a.Port(), Protocol: unix.IPPROTO_UDP}
}

// pictured is a picture of one port.
func pictured(frontends, serving []string) *picture {
	at := &port{portID: portID{protocol: unix.IPPROTO_UDP}, serving: ats(serving...)}
	slices.SortFunc(at.serving, netip.AddrPort.Compare)
	p := &picture{ports: []*port{at}}
	for _, f := range frontends {
		p.openings = append(p.openings, opening{destination: to(f), port: at})
	}
	p.sort()
	return p
}

// apply stores an applied picture.
func (t *table) apply(key service.Key, p *picture) { t.put(key, p, true, time.Now()) }

// tell is apply, for tests of UDP flows alone.
func (t *table) tell(key service.Key, p *picture) {
	t.apply(key, p)
	clear(t.todo.checks)
}

// judge reports whether a UDP flow is stale, where node ports answer on the host of the tests.
func (t *table) judge(f *flow) (by service.Key, stale bool) {
	s := &sweep{table: t, todo: t.todo, answering: service.NodePortAddresses{All: true}, host: map[netip.Addr]bool{at(onNode).Addr(): true}}
	return s.outdated(f)
}

func named(name string) service.Key { return service.Key{Namespace: "ns1", Name: name} }
