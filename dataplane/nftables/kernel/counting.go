// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane/nftables/render"
	"github.com/sluice-proxy/sluice/dataplane/nftables/wire"
	"github.com/sluice-proxy/sluice/internal/netlink"
	"github.com/sluice-proxy/sluice/service"
)

// counting is the effect of one transaction on counters. The kernel returns each element that the transaction
// deletes, with its counter, in messages to the sender (NLM_F_ECHO). No reading is therefore needed before a
// change, and the cost of a change depends on what it deletes.
type counting struct {
	tally *Tally
	// sets are the changed sets with counters, deleted the number of their elements that are deleted.
	sets    map[string]bool
	deleted int
	// ended are sets that are deleted with their counters, gone the frontends that are no longer served.
	ended []string
	gone  []service.Frontend
	// misses is set if counters are deleted that the kernel does not return, or if another release's counters
	// will be deleted.
	misses bool
	echoes []echo
}

type echo struct {
	set   string
	count render.Count
}

// counting returns the effect of a part on counters. The kernel drops echoes that do not fit into the buffer of
// the socket, and the answer with them. If they might not fit, the transaction requests no echoes.
func (p *plan) counting(tally *Tally, part []operation, socket Socket) *counting {
	c := &counting{tally: tally, sets: make(map[string]bool), misses: p.recounts}
	container, counts := "", false // of the last element
	for _, o := range part {
		id := p.changes[o.number].ID
		set, isElement := render.SetOf(id.Container)
		if id.Container != container {
			container, counts = id.Container, isElement && render.CountedIn(set) != render.CountsNothing
			if counts {
				c.sets[set] = true
			}
		}
		switch {
		case counts && o.step == stepDeleteElement:
			c.deleted++
		case counts:
		case o.step == stepDeleteSet && render.CountedIn(id.Name) != render.CountsNothing:
			c.ended = append(c.ended, id.Name)
			c.misses = c.misses || !render.IsShared(id.Name) && p.keeps(p.changes[o.number].Owner)
		case id == unallocated && (o.step == stepNewChain || o.step == stepFlushChain), o.step == stepDeleteTable:
			c.misses = true
		}
	}
	if c.deleted == 0 {
		return c
	}
	if room := echoesMax(socket); c.deleted > room {
		c.deleted, c.misses = 0, true
	}
	c.gone = p.gone(part)
	return c
}

// echoesMax returns how many echoes certainly fit, with room for answers. The tests' kernel in memory has no limit.
func echoesMax(socket Socket) int {
	const enough = 1 << 30
	real, ok := socket.(interface{ Answers() (int, error) })
	if !ok {
		return enough
	}
	n, err := real.Answers()
	if err != nil {
		return 0
	}
	return n / 2
}

// keeps reports whether the batch leaves or adds an object of a Service.
func (p *plan) keeps(owner service.Key) bool {
	for i := range p.changes {
		if p.changes[i].Owner == owner && p.changes[i].After != nil {
			return true
		}
	}
	return false
}

// gone returns the frontends for which a part deletes the elements that serve or refuse them, and adds none.
// Each part of a plan has all changes of its Services.
func (p *plan) gone(part []operation) (all []service.Frontend) {
	state := make(map[service.Frontend]bool)
	for _, o := range part {
		id := p.changes[o.number].ID
		set, _ := render.SetOf(id.Container)
		if !render.Serves(set) {
			continue
		}
		if f, ok := (render.Naming{}).Frontend(id); ok {
			state[f] = state[f] || o.step != stepDeleteElement
		}
	}
	for f, stays := range state {
		if !stays {
			all = append(all, f)
		}
	}
	return all
}

// begin is called before the transaction.
func (c *counting) begin(t *wire.Transaction) {
	t.Listen(c.receive)
	c.tally.turn(c.sets)
}

// echo reports whether a message requests the deleted elements from the kernel.
func (c *counting) echo(kind uint16, set string) bool {
	return kind == unix.NFT_MSG_DELSETELEM && c.deleted > 0 && c.sets[set]
}

// receive notes the counters in an echo.
func (c *counting) receive(m netlink.Netfilter) {
	if m.Kind != unix.NFT_MSG_DELSETELEM {
		return
	}
	set := netlink.Find(m.Attrs, unix.NFTA_SET_ELEM_LIST_SET).Text()
	for element := range netlink.Attrs(netlink.Find(m.Attrs, unix.NFTA_SET_ELEM_LIST_ELEMENTS).Data) {
		if count, ok := render.ReadCount(set, element.Data); ok {
			c.echoes = append(c.echoes, echo{set, count})
		}
	}
}

// end is called after the transaction.
func (c *counting) end(rejections []*wire.Rejection, err error) {
	landed := len(rejections) == 0 && err == nil
	_, notSent := errors.AsType[*netlink.NotSentError](err)
	if landed {
		for _, e := range c.echoes {
			c.tally.carry(e.set, e.count)
		}
		for _, f := range c.gone {
			c.tally.forget(f)
		}
		for _, set := range c.ended {
			c.tally.end(set)
		}
	}
	if err != nil && !notSent || landed && (c.misses || len(c.echoes) < c.deleted) {
		c.tally.lost()
	}
	c.tally.turn(c.sets)
}

// uncounts reports whether an announcement shows that another process changed counters.
func uncounts(m netlink.Netfilter) bool {
	const name = 2 // NFTA_SET_NAME, NFTA_SET_ELEM_LIST_SET, NFTA_RULE_CHAIN
	switch m.Kind {
	case unix.NFT_MSG_DELTABLE:
		return true
	case unix.NFT_MSG_NEWSETELEM, unix.NFT_MSG_DELSETELEM, unix.NFT_MSG_DELSET:
		return render.CountedIn(netlink.Find(m.Attrs, name).Text()) != render.CountsNothing
	case unix.NFT_MSG_NEWRULE, unix.NFT_MSG_DELRULE:
		return netlink.Find(m.Attrs, name).Text() == unallocated.Name
	}
	return false
}
