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

// Watch calls changed when another program may have touched our chains or hooks, so that what it
// deleted does not stay away until the next periodic audit. It runs until the context ends, and
// returns the context's cause.
//
//	nft variant     the kernel announces each transaction: immediately (this file)
//	legacy variant  the kernel tells sizes and nothing else: within a second (watch_sizes.go)
//	other tools     not at all; the periodic audit remains
//
// The writer's own changes ask for no audit. In doubt, another program did it: that costs a
// read, and to take another program's deletion for our own would be an outage.
func (w *Writer) Watch(ctx context.Context, changed func(by dataplane.ForeignProcess)) error {
	switch {
	case w.ownWrites != nil:
		return w.watchAnnounced(ctx, changed)
	case w.sizes != nil:
		return w.watchSizes(ctx, changed)
	default:
		<-ctx.Done()
		return context.Cause(ctx)
	}
}

// every calls look immediately and then at an interval, each time with the turn, until the context
// ends, and returns the context's cause.
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

// chainFinder is an optional interface of a tool that can look up one chain without listing a
// whole table.
type chainFinder interface {
	HasChain(ctx context.Context, table render.Table, chain string) (bool, error)
}

// hasChain asks in the cheapest way that the tool offers.
func hasChain(ctx context.Context, tool Tool, table render.Table, chain string) (bool, error) {
	if finder, ok := tool.(chainFinder); ok {
		return finder.HasChain(ctx, table, chain)
	}
	s, err := readTable(ctx, tool, table, Ownership{Owns: func(_ render.Table, name string) bool { return name == chain }})
	if err != nil {
		return false, err
	}
	return s.exists[chain], nil
}

// announcer is an optional interface of a tool whose kernel announces changes of the tables.
type announcer interface {
	// Announced reports whether the kernel does so for this tool's tables.
	Announced() bool
	// OnStart makes the tool call started with the ID of each process, right after its start.
	OnStart(started func(pid int))
}

// ownWrites distinguishes what our own processes do to the tables from what others do. The kernel
// announces a change with the port of the netlink socket that asked for it, and a process's first
// socket has the process ID as its port.
//
// The author of a change is known once all processes of a write are known. So announcements that
// arrive during a write are judged at its end; nothing waits for that, because a read has to
// wait for the end as well. A process that got another port, because its ID was taken, counts as
// another program, which costs a read.
//
// The lock guards the fields, never a call.
type ownWrites struct {
	mu sync.Mutex
	// writing is set from before the first process of a write starts until its last one has
	// ended.
	writing bool
	// own holds the ports of our processes, with the time until which they count: the zero time
	// for those of the current write.
	own map[uint32]time.Time
	// heard holds the ports of the changes announced during the write, with the process that
	// the kernel names.
	heard map[uint32]dataplane.ForeignProcess
	// lost is set if announcements were lost during the write.
	lost bool
}

// ownAfterwards is how long a port of ours counts after its write: a change is announced before
// its process ends, but may arrive a moment later. No other program must get the ID meanwhile.
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

// started records a process of ours.
func (a *ownWrites) started(pid int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.writing {
		a.own[uint32(pid)] = time.Time{}
	}
}

// end marks the end of the write and returns the strangers that changed something during it.
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

// foreign reports whether a change is certainly a stranger's. It reports false during a write,
// at whose end the answer is known.
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

// missed records that announcements were lost, and reports whether that counts now. During a
// write it reports false, and end reports the loss.
func (a *ownWrites) missed() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lost = a.writing
	return !a.writing
}

// watchAnnounced listens to the announcements about our tables, and names the process behind each
// transaction.
func (w *Writer) watchAnnounced(ctx context.Context, changed func(by dataplane.ForeignProcess)) error {
	w.afterWrite.Store(&changed)
	defer w.afterWrite.Store(nil)
	// Our process IDs are not known beforehand. The filter in the kernel excludes the other
	// families and changes that no process has asked for.
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

// concerns reports whether an announcement is about something of a mode: one of its chains, a
// rule in one, a rule that leads to one from a built-in chain, or a whole table. Other users of
// iptables (a container runtime, a network plugin) write to the same tables all the time, so
// everything else must cost nothing. A renamed chain of ours goes unnoticed: the announcement
// holds only the new name.
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

// hookIn reports whether an announcement about a built-in chain concerns a hook: one about a rule
// holds the name of the chain that the rule leads to.
func (o *Ownership) hookIn(table render.Table, chain string, m netlink.Netfilter) bool {
	for i := range o.Hooks {
		h := &o.Hooks[i]
		if h.Table != table || h.Chain != chain {
			continue
		}
		switch m.Kind {
		case unix.NFT_MSG_NEWCHAIN: // its policy, or it is new
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
