// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/iptables/render"
	"github.com/sluice-proxy/sluice/internal/host/holder"
	"github.com/sluice-proxy/sluice/internal/netlink"
	"github.com/sluice-proxy/sluice/service"
)

// Watch calls changed when another program may have changed Sluice's chains or hooks, so that deleted
// rules are restored before the next periodic audit. It runs until the context ends, and returns the
// context's cause.
//
//	nft variant     the kernel announces each transaction: immediately (this file)
//	legacy variant  the kernel reports only the tables' sizes: within a second (watch_sizes.go)
//
// Watch does not call changed for the writer's own changes. In doubt, it assumes another program: that
// costs a read, whereas ignoring another program's deletion would cause an outage.
func (w *Writer) Watch(ctx context.Context, changed func(by dataplane.ForeignProcess)) error {
	if w.ownWrites != nil {
		return w.watchAnnounced(ctx, changed)
	}
	return w.watchSizes(ctx, changed)
}

// every calls look immediately and then at an interval, until the context ends, and returns the
// context's cause. It holds the writer's turn during each call.
func (w *Writer) every(ctx context.Context, interval time.Duration, look func()) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-timer.C:
		}
		if err := w.acquire(ctx); err != nil {
			return err
		}
		look()
		w.release()
		timer.Reset(interval)
	}
}

// ownWrites distinguishes changes by Sluice's child processes from those by other programs. The kernel
// announces a change with the port of the netlink socket that requested it, and a process's first
// socket has the process ID as its port.
//
// Only at the end of a write are all of its processes known. Announcements that arrive during a write
// are therefore judged at its end. This delays nothing, because a read has to wait for the end, too. A
// child that got another port, because its process ID was taken as a port, counts as another program,
// which costs a read.
//
// The lock guards only the fields.
type ownWrites struct {
	mu sync.Mutex
	// writing is set from before the first process of a write starts until its last one has
	// ended.
	writing bool
	// own has the ports of Sluice's processes, with the time until which they count as Sluice's: the
	// zero time for those of the current write.
	own map[uint32]time.Time
	// heard has the ports of the changes announced during the write, with the process that the kernel
	// names.
	heard map[uint32]dataplane.ForeignProcess
	// lost is set if announcements were lost during the write.
	lost bool
}

// ownAfterwards is how long a port counts as Sluice's after its write: an announcement may arrive after
// the process ended. Within this time, no other process must get the same ID.
const ownAfterwards = 3 * time.Second

func newOwnWrites() *ownWrites {
	return &ownWrites{own: make(map[uint32]time.Time), heard: make(map[uint32]dataplane.ForeignProcess)}
}

// begin marks the beginning of a write.
func (a *ownWrites) begin() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.writing = true
}

// started records a child process.
func (a *ownWrites) started(pid int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.writing {
		a.own[uint32(pid)] = time.Time{}
	}
}

// end marks the end of the write and returns the other processes that changed something during it.
func (a *ownWrites) end(now time.Time) (strangers []dataplane.ForeignProcess) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for port, by := range a.heard {
		if _, ours := a.own[port]; !ours {
			strangers = append(strangers, by)
		}
	}
	if a.lost {
		strangers = append(strangers, dataplane.ForeignProcess{})
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

// foreign reports whether another process certainly made a change. During a write it returns false;
// end then returns the process.
func (a *ownWrites) foreign(port uint32, by dataplane.ForeignProcess, now time.Time) bool {
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

// missed records that announcements were lost, and reports whether to call changed now. During a write
// it returns false, and end reports the loss.
func (a *ownWrites) missed() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lost = a.writing
	return !a.writing
}

// watchAnnounced listens to the kernel's announcements about the tables of the family, and calls changed
// with the process that made each transaction.
func (w *Writer) watchAnnounced(ctx context.Context, changed func(by dataplane.ForeignProcess)) error {
	w.afterWrite.Store(&changed)
	defer w.afterWrite.Store(nil)
	// Port 0 excludes changes that no process requested: the ports of Sluice's processes are not
	// known beforehand. The filter in the kernel also excludes the other families.
	listener, err := netlink.ListenTables(netfilterFamily[w.family], 0)
	if err != nil {
		return fmt.Errorf("watch %s rules: %w", w.family, err)
	}
	touched := false
	err = listener.Run(ctx, func(m netlink.Netfilter) {
		pid, command, ends := netlink.Generation(m)
		if !ends {
			if m.Family == netfilterFamily[w.family] && w.config.Ownership.concerns(m) {
				touched = true
			}
			return
		}
		by := dataplane.ForeignProcess{PID: pid, Command: command}
		if touched && w.ownWrites.foreign(m.Port, by, time.Now()) {
			by.Origin = holder.Origin(pid, command)
			changed(by)
		}
		touched = false
	}, func() {
		if w.ownWrites.missed() {
			changed(dataplane.ForeignProcess{})
		}
	})
	return errors.Join(err, listener.Close())
}

var netfilterFamily = service.PerFamily[uint8]{
	service.IPv4: unix.NFPROTO_IPV4, service.IPv6: unix.NFPROTO_IPV6,
}

// The messages that x/sys does not name: "delete, if it exists".
const (
	msgDestroyTable = 26
	msgDestroyChain = 27
	msgDestroyRule  = 28
)

// concerns reports whether an announcement is about something that a mode owns: one of its chains, a
// rule in one, a rule of a built-in chain that jumps to one, or a whole table. Other users of iptables
// (a container runtime, a network plugin) write to the same tables all the time, so any other
// announcement must not cause a read. Renaming an owned chain is not noticed: the announcement has only
// the new name.
func (o *Ownership) concerns(m netlink.Netfilter) bool {
	// Each message about a table's content begins with the table's name.
	table := render.Table(netlink.Find(m.Attrs, unix.NFTA_TABLE_NAME).Text())
	if !slices.Contains(render.Tables[:], table) {
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
	return o.Owns(table, chain) || render.IsShared(table, chain) || o.hookIn(table, chain, m)
}

// hookIn reports whether an announcement about a built-in chain concerns a hook: an announcement about
// a rule contains the name of the rule's target chain.
func (o *Ownership) hookIn(table render.Table, chain string, m netlink.Netfilter) bool {
	for i := range o.Hooks {
		h := &o.Hooks[i]
		if h.Table != table || h.Chain != chain {
			continue
		}
		switch m.Kind {
		case unix.NFT_MSG_NEWCHAIN: // its policy changed, or it is new
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
