package iptables

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/internal/netlink"
	"github.com/sluice-proxy/sluice/service"
)

// announcer is what a tool may offer whose kernel announces what is done to its
// tables.
type announcer interface {
	// Announced reports whether the kernel does so for the tables of this one.
	Announced() bool
	// OnStart has started called with the number of each process that the tool
	// starts, right after it has started.
	OnStart(started func(pid int))
}

// authors tells what our own processes do to the tables from what others do. The
// kernel announces a change with the port of the netlink socket that asked for it, and
// gives a process's first socket the number of the process as its port.
//
// Whose a change is can be said once all processes of a write are known. So what is
// heard during a write is judged at its end; nothing waits for that, since a read has
// to wait for it as well. A process that got another port, since its number was taken,
// is taken for a stranger, which costs a read.
//
// The lock guards the fields, never a call.
type authors struct {
	mu sync.Mutex
	// writing is set while a write is under way, from before its first process
	// starts until its last one has ended.
	writing bool
	// own are the ports of our processes, with the time until which they count: the
	// zero time for those of the write under way.
	own map[uint32]time.Time
	// heard are the ports of changes that were heard during the write, with the
	// process that the kernel names.
	heard map[uint32]dataplane.Stranger
	// lost is set when announcements were lost during the write.
	lost bool
}

// ownAfterwards is how long the port of one of our processes counts as ours after its
// write: what it did was announced before it ended, but may be heard a moment later.
// The number must not come back to life with a stranger meanwhile.
const ownAfterwards = 3 * time.Second

func newAuthors() *authors {
	return &authors{own: make(map[uint32]time.Time), heard: make(map[uint32]dataplane.Stranger)}
}

// begin says that a write begins.
func (a *authors) begin() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.writing = true
}

// started says that a process of ours has started.
func (a *authors) started(pid int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.writing {
		a.own[uint32(pid)] = time.Time{}
	}
}

// end says that the write has ended, and gives the strangers that have changed
// something during it.
func (a *authors) end(now time.Time) (strangers []dataplane.Stranger) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for port, by := range a.heard {
		if _, ours := a.own[port]; !ours {
			strangers = append(strangers, by)
		}
	}
	if a.lost {
		strangers = append(strangers, dataplane.Stranger{})
	}
	clear(a.heard)
	a.lost, a.writing = false, false
	for port, until := range a.own {
		switch {
		case until.IsZero():
			a.own[port] = now.Add(ownAfterwards)
		case !now.Before(until):
			delete(a.own, port)
		}
	}
	return strangers
}

// foreign reports whether a change is known to be a stranger's; false when that is told
// at the end of the write.
func (a *authors) foreign(port uint32, by dataplane.Stranger, now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if until, ours := a.own[port]; ours && (until.IsZero() || now.Before(until)) {
		return false
	}
	if a.writing {
		a.heard[port] = by
	}
	return !a.writing
}

// missed says that announcements were lost, and tells whether that counts now; false
// when it is told at the end of the write.
func (a *authors) missed() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lost = a.writing
	return !a.writing
}

// watchAnnounced listens to what the kernel announces of our tables. It says who it was
// behind all that a transaction has changed.
func (w *Writer) watchAnnounced(ctx context.Context, changed func(by dataplane.Stranger)) error {
	w.afterWrite.Store(&changed)
	defer w.afterWrite.Store(nil)
	// Which processes are ours is not known before: the filter in the kernel keeps
	// away the other families, and changes that no process has asked for.
	listener, err := netlink.ListenTables(protocols[w.family], 0)
	if err != nil {
		return fmt.Errorf("watch %s rules: %w", w.family, err)
	}
	touched := false
	err = listener.Run(ctx, func(m netlink.Netfilter) {
		pid, command, ends := netlink.Generation(m)
		if !ends {
			touched = touched || m.Family == protocols[w.family] && w.config.Territory.concerns(m)
			return
		}
		by := dataplane.Stranger{PID: pid, Command: command}
		if touched && w.authors.foreign(m.Port, by, time.Now()) {
			changed(by)
		}
		touched = false
	}, func() {
		if w.authors.missed() {
			changed(dataplane.Stranger{})
		}
	})
	return errors.Join(err, listener.Close())
}

// protocols are nf_tables' numbers of the families.
var protocols = service.PerFamily[uint8]{service.IPv4: unix.NFPROTO_IPV4, service.IPv6: unix.NFPROTO_IPV6}

// The messages that x/sys does not name: "delete, if it is there".
const (
	msgDestroyTable = 26
	msgDestroyChain = 27
	msgDestroyRule  = 28
)

// concerns reports whether an announcement is about something of a mode: one of its
// chains, a rule in one, a rule that leads to one from a built-in chain, or everything.
// Who else uses iptables (a container runtime, a network plugin) writes to the same
// tables all the time, so the rest must cost nothing. That a chain of ours got another
// name is not told: the announcement has only the new one.
func (t *Territory) concerns(m netlink.Netfilter) bool {
	// Every message about a table's content begins with the table's name.
	table := Table(netlink.Find(m.Attrs, unix.NFTA_TABLE_NAME).Text())
	if table != Mangle && table != Filter && table != NAT {
		return false
	}
	var chain string
	switch m.Kind {
	case unix.NFT_MSG_DELTABLE, msgDestroyTable:
		return true
	case unix.NFT_MSG_NEWCHAIN, unix.NFT_MSG_DELCHAIN, msgDestroyChain:
		chain = netlink.Find(m.Attrs, unix.NFTA_CHAIN_NAME).Text()
	case unix.NFT_MSG_NEWRULE, unix.NFT_MSG_DELRULE, msgDestroyRule:
		chain = netlink.Find(m.Attrs, unix.NFTA_RULE_CHAIN).Text()
	default:
		return false
	}
	return t.Owns(table, chain) || isShared(table, chain) || t.hookIn(table, chain, m)
}

// hookIn reports whether an announcement about a built-in chain concerns a hook: one
// about a rule holds the name of the chain that the rule leads to.
func (t *Territory) hookIn(table Table, chain string, m netlink.Netfilter) bool {
	for i := range t.Hooks {
		h := &t.Hooks[i]
		if h.Table != table || h.Chain != chain {
			continue
		}
		switch m.Kind {
		case unix.NFT_MSG_NEWCHAIN: // its policy, or it was not there
		case unix.NFT_MSG_DELCHAIN, msgDestroyChain:
			return true
		default:
			if bytes.Contains(m.Attrs, append([]byte(h.Target), 0)) {
				return true
			}
		}
	}
	return false
}
