// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane/nftables/render"
	"github.com/sluice-proxy/sluice/dataplane/nftables/rules"
	"github.com/sluice-proxy/sluice/dataplane/nftables/wire"
	"github.com/sluice-proxy/sluice/internal/netlink"
	"github.com/sluice-proxy/sluice/service"
)

// guardTable is the table of userspace mode. That mode makes Service addresses local to the host, so a
// process that listens on all addresses of the host would answer at them. The table rejects new clients
// of these addresses, except at frontends, in a chain for packets to the host:
//
//	@guarded              addresses of Services
//	@frontends            address, protocol and port on which the proxy listens
//	@health-check-ports   TCP ports that answer at all of these addresses
//
// It tracks no connections. It rejects only TCP packets that can open a connection, so open connections
// continue after their frontend was removed.
const guardTable = "sluice-guard"

// guardPart limits the elements of one transaction, which has to fit into the socket's buffer.
const guardPart = 2000

// Guard writes and reads the table of one family that prevents host processes from answering at
// Service addresses. An element is a [service.Frontend]: without a port it is an address to guard,
// without an address a health check port. Only one goroutine at a time may use it; Watch may run
// concurrently.
type Guard struct {
	d      *rules.Header
	inside netlink.Inside
	socket Socket
	// intact is set while the table is known to have Sluice's chain and sets.
	intact bool
}

// NewGuard opens a guard, and changes nothing. It returns a *MissingError if the kernel lacks a feature
// that the guard needs. The function inside is as in WriterConfig.
func NewGuard(family service.Family, inside netlink.Inside) (*Guard, error) {
	g := &Guard{d: &rules.Headers[family], inside: inside}
	lacks := func(err error) error {
		return &MissingError{Family: family, Feature: "a table that guards ports of the host", Need: "CONFIG_NF_TABLES, CONFIG_NFT_REJECT", Err: err}
	}
	err := inside.Do(func() error {
		socket, err := wire.Open()
		if err == nil {
			g.socket = socket
		}
		return err
	})
	switch {
	case errors.Is(err, unix.EPROTONOSUPPORT) || errors.Is(err, unix.EAFNOSUPPORT):
		return nil, lacks(err)
	case err != nil:
		return nil, err
	}
	if err = g.try(); netlink.Busy(err) || errors.Is(err, unix.EPERM) {
		err = fmt.Errorf("probe the kernel: %w", err)
	} else if err != nil {
		err = lacks(err)
	}
	if err != nil {
		return nil, errors.Join(err, g.socket.Close())
	}
	return g, nil
}

// Close closes the socket. The table stays.
func (g *Guard) Close() error { return g.socket.Close() }

// try adds sets and rules in a table of the probe, and removes them in the same transaction.
func (g *Guard) try() error {
	p := &prober{d: g.d, socket: g.socket}
	e := p.emitter()
	for _, s := range render.GuardSets(g.d.Family) {
		e.addSet(s.ID.Name, s.Body)
	}
	c := render.GuardChain(g.d.Family)
	c.Base = nil
	e.addWhole(c)
	e.deleteTable()
	return e.commit(p.socket)
}

// addressesLast sorts addresses behind frontends and health check ports.
func addressesLast(elements []service.Frontend) []service.Frontend {
	sorted := slices.Clone(elements)
	rank := func(f service.Frontend) int {
		if f.Addr.IsValid() && f.Port == 0 {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(sorted, func(a, b service.Frontend) int { return rank(a) - rank(b) })
	return sorted
}

// Add adds elements, and the table if it does not exist: frontends before their addresses. Adding an
// existing element succeeds. After an error, some elements may have been added.
func (g *Guard) Add(elements []service.Frontend) error {
	for part := range slices.Chunk(addressesLast(elements), guardPart) {
		if err := g.change(part, unix.NFT_MSG_NEWSETELEM); err != nil {
			return err
		}
	}
	return nil
}

// Remove removes elements: addresses before their frontends. Removing a missing element succeeds. After
// an error, some elements may have been removed.
func (g *Guard) Remove(elements []service.Frontend) error {
	sorted := addressesLast(elements)
	slices.Reverse(sorted)
	for part := range slices.Chunk(sorted, guardPart) {
		// Each element is added first, because the kernel rejects the deletion of a missing one.
		if err := g.change(part, unix.NFT_MSG_NEWSETELEM, unix.NFT_MSG_DELSETELEM); err != nil {
			return err
		}
	}
	return nil
}

// change sends one transaction with a message of each kind for each element.
func (g *Guard) change(elements []service.Frontend, kinds ...uint16) error {
	e := newEmitter(g.d, guardTable)
	if !g.intact {
		g.build(e)
	}
	for _, kind := range kinds {
		for _, f := range elements {
			e.element(kind, render.GuardElement(f), "", 0)
		}
	}
	if err := e.commit(g.socket); err != nil {
		g.intact = false
		return fmt.Errorf("change the %s table %s: %w", g.d.Family, guardTable, err)
	}
	g.intact = true
	return nil
}

// build adds the table, or replaces the rules of an existing one. Its elements stay.
func (g *Guard) build(e *emitter) {
	e.addTable("")
	for _, s := range render.GuardSets(g.d.Family) {
		e.addSet(s.ID.Name, s.Body)
	}
	c := render.GuardChain(g.d.Family)
	body := string(c.Encode())
	e.addChain(c.Name, body)
	e.flushChain(c.Name)
	e.addRules(c.Name, body)
}

// Read returns all elements; none if the table is missing or does not have Sluice's rules.
func (g *Guard) Read(ctx context.Context) (found []service.Frontend, err error) {
	r := &reader{d: g.d, socket: g.socket}
	g.intact = false
	chain := render.GuardChain(g.d.Family)
	read := func() error {
		found = nil
		switch body, err := r.chainOf(ctx, guardTable, chain.Name); {
		case errors.Is(err, unix.ENOENT):
			return nil
		case err != nil:
			return err
		case string(body) != string(chain.Encode()):
			return nil // the next change repairs it
		}
		for _, s := range render.GuardSets(g.d.Family) {
			err := r.elements(ctx, true, within(guardTable, unix.NFTA_SET_ELEM_LIST_SET, s.ID.Name), func(attrs []byte) {
				key := netlink.Find(netlink.Find(attrs, unix.NFTA_SET_ELEM_KEY).Data, unix.NFTA_DATA_VALUE).Data
				if f, ok := render.ParseGuardElement(s.ID.Name, key); ok {
					found = append(found, f)
				}
			})
			if err != nil {
				return goneMeanwhile(err)
			}
		}
		if repeats(found, func(f service.Frontend) service.Frontend { return f }) {
			return netlink.ErrInterrupted
		}
		g.intact = true
		return nil
	}
	if err := r.steadily(ctx, read); err != nil {
		return nil, fmt.Errorf("read the %s table %s: %w", g.d.Family, guardTable, err)
	}
	return found, nil
}

// Watch calls changed when another program changed the table, until the context ends.
func (g *Guard) Watch(ctx context.Context, changed func()) error {
	var listener *netlink.TableListener
	err := g.inside.Do(func() (err error) {
		listener, err = netlink.ListenTables(g.d.Protocol, g.socket.Port())
		return err
	})
	if err != nil {
		return fmt.Errorf("watch the %s table %s: %w", g.d.Family, guardTable, err)
	}
	each := func(m netlink.Netfilter) {
		if isAbout(g.d, m, guardTable) {
			changed()
		}
	}
	return errors.Join(listener.Run(ctx, each, changed), listener.Close())
}

// RemoveGuard removes the guard's table of a family, and reports whether there was one. With dry it removes nothing.
func RemoveGuard(ctx context.Context, family service.Family, dry bool) (there bool, err error) {
	d := &rules.Headers[family]
	err = commanding(func(socket Socket) (err error) {
		if !dry {
			there, err = deleteTable(socket, d, guardTable)
			return err
		}
		err = (&reader{d: d, socket: socket}).ask(ctx, unix.NFT_MSG_GETTABLE, false, within(guardTable, 0, ""), func([]byte) { there = true })
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EAFNOSUPPORT) {
			return nil
		}
		return err
	})
	if err != nil {
		return there, fmt.Errorf("remove the %s table %s: %w", family, guardTable, err)
	}
	return there, nil
}
