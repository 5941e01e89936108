// SPDX-License-Identifier: Apache-2.0

// Package nftmodel is a model of nf_tables in memory, for tests and the simulation. It shares no rule
// with the product. It takes the transactions of [wire.Transaction] that the real kernel takes over
// netlink, rejects what the kernel rejects with the same error numbers, answers the same
// questions, and follows packets through the rules.
//
// # What it models
//
// One [Kernel] is one node, with the tables of both IP families: base chains and chains,
// rules, sets and maps (hashed ones, and concatenations whose fields are ranges), elements
// with timeouts, reference counts, generations, the node's own addresses, and a clock. A
// transaction lands whole or not at all. [Kernel.Trace] follows the first packet of a new
// connection, expression by expression, through the base chains in the order of their hooks
// and priorities. [Kernel.Outcomes] returns every way in which it can end, with its
// probability, and [Kernel.Explore] also what that depends on. [Kernel.Items] lists
// everything in the tables.
//
// A base chain that a transaction deletes is called for a moment longer, as by the kernel;
// [Kernel.ExploreLeaving] follows packets in that moment.
//
// # What it leaves out
//
// There is no connection tracking: every packet is the first of its connection. There are no
// routes. Of the bits of a connection's status it knows only the one that says "destination
// translated". A rule knows the expressions that Sluice writes, and a counter. Everything
// else is rejected with EINVAL and an explanation, never ignored: what lands is understood.
// The kernel is laxer there and ignores attributes that it does not know. Nothing is
// announced to listeners.
//
// # How it is checked
//
// Tests give the same transactions and questions, chosen and random ones, to this package
// and to the real kernel in a namespace, and compare every rejection, the generation, and what
// is read back. Random packets through random rulesets end as in package rules, which evaluates the same rules from
// data. Error numbers are those of Linux 6.18.
package nftmodel

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane"
	nftkernel "github.com/sluice-proxy/sluice/dataplane/nftables/kernel"
	"github.com/sluice-proxy/sluice/dataplane/nftables/wire"
	"github.com/sluice-proxy/sluice/internal/netlink"
	"github.com/sluice-proxy/sluice/service"
)

// Kernel is the nf_tables of one node. It is safe for concurrent use: one
// transaction, question or packet at a time.
type Kernel struct {
	mu     sync.Mutex
	tables map[tableKey]*table
	// generation counts the transactions that have changed something.
	generation uint32
	// handles numbers tables, as the kernel does.
	handles uint64
	// ports numbers the sockets.
	ports  uint32
	locals map[netip.Addr]bool
	now    func() time.Time
	// rejected, when set, picks elements that may not be added.
	rejected func(element Name) bool
	// leaving are the base chains that the last transaction deleted, with the rules that the
	// kernel runs until it has unregistered their hooks.
	leaving []*chain
	// vague is set if rejections do not say which attribute of a message they are about.
	vague bool
}

// NewKernel returns a kernel without tables, with no addresses but the loopback
// ones, and with the clock of package time (which is virtual inside a
// testing/synctest bubble).
func NewKernel() *Kernel {
	return &Kernel{
		tables: make(map[tableKey]*table), generation: 1,
		locals: make(map[netip.Addr]bool), now: time.Now,
	}
}

// SetAddresses says which addresses, of either family, are the node's own besides
// the loopback ones.
func (k *Kernel) SetAddresses(addrs ...netip.Addr) {
	k.mu.Lock()
	defer k.mu.Unlock()
	clear(k.locals)
	for _, a := range addrs {
		k.locals[a] = true
	}
}

// SetClock replaces the clock by which elements time out.
func (k *Kernel) SetClock(now func() time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.now = now
}

// SetRejected makes the kernel reject to add elements with EINVAL. The function is called
// during transactions and must not use the kernel; nil rejects none.
func (k *Kernel) SetRejected(rejected func(element Name) bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.rejected = rejected
}

// SetVague makes rejections name a whole message, as kernels before Linux 4.12 do, instead of
// the element that is rejected.
func (k *Kernel) SetVague(vague bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.vague = vague
}

// Open opens a socket, as WriterConfig.Open does. It never fails.
func (k *Kernel) Open() (nftkernel.Socket, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ports++
	return &socket{kernel: k, port: k.ports}, nil
}

// Generation counts the transactions that have changed something, as the kernel's
// NFTA_GEN_ID does.
func (k *Kernel) Generation() uint32 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.generation
}

// local reports whether an address is the node's own.
func (k *Kernel) local(a netip.Addr) bool { return a.IsLoopback() || k.locals[a] }

// socket implements [nftkernel.Socket].
type socket struct {
	kernel *Kernel
	port   uint32
	closed bool
}

var _ nftkernel.Socket = (*socket)(nil)

// roomBytes is the size of the largest transaction that a privileged process can send.
const roomBytes = 128 << 20

// Commit carries a transaction out, or returns a rejection for each rejected message.
func (s *socket) Commit(t *wire.Transaction) ([]*wire.Rejection, error) {
	switch {
	case s.closed:
		return nil, &netlink.NotSentError{Err: unix.EBADF}
	case t.Messages() == 0:
		return nil, nil
	case t.Bytes() > roomBytes:
		return nil, &netlink.NotSentError{Err: unix.EMSGSIZE}
	}
	return s.kernel.commit(t), nil
}

// Ask returns the messages of the answer to a question.
func (s *socket) Ask(ctx context.Context, kind uint16, family uint8, all bool, attrs []byte, each func(wire.Message)) error {
	if s.closed {
		return unix.EBADF
	}
	messages, err := s.kernel.answer(kind, family, all, attrs)
	for _, m := range messages {
		if ctx.Err() == nil {
			m.Port = s.port
			each(m)
		}
	}
	return err
}

// Port identifies the socket among those of the kernel.
func (s *socket) Port() uint32 { return s.port }

// Room is the size in bytes of the largest transaction that is taken.
func (s *socket) Room() int { return roomBytes }

// Close returns the socket up; later calls fail.
func (s *socket) Close() error {
	s.closed = true
	return nil
}

// batch is a transaction being carried out: it changes the kernel immediately, and notes how to
// undo each change.
type batch struct {
	kernel *Kernel
	now    time.Time
	undo   []func()
	// echoes are what the sender wants to know of what it deletes.
	echoes []netlink.Netfilter
	// changed is set if the kernel counts a generation.
	changed bool
	// leaving is what is deleted.
	leaving leaving
	// suspicious are the tables to validate.
	suspicious map[*table]bool
	// careful validates after each message, to find the one to blame.
	careful bool
}

// commit carries a transaction out, or returns the rejections and changes nothing.
func (k *Kernel) commit(t *wire.Transaction) []*wire.Rejection {
	k.mu.Lock()
	defer k.mu.Unlock()
	requests := requestsOf(t)
	b := k.begin(false)
	rejections := b.run(t, requests)
	if len(rejections) == 0 && b.validate() != nil {
		b.rollBack()
		b = k.begin(true)
		rejections = b.run(t, requests)
	}
	if len(rejections) > 0 {
		b.rollBack()
		return rejections
	}
	if b.changed {
		k.generation++
	}
	k.leaving = b.leaving.end()
	for _, m := range b.echoes {
		t.Echo(m)
	}
	return nil
}

func (k *Kernel) begin(careful bool) *batch {
	return &batch{kernel: k, now: k.now(), leaving: newLeaving(), suspicious: make(map[*table]bool), careful: careful}
}

// run applies all messages. It continues after a rejection, as the kernel does, so that
// everything wrong is named together.
func (b *batch) run(t *wire.Transaction, requests []request) []*wire.Rejection {
	var rejections []*wire.Rejection
	for _, r := range requests {
		err := b.apply(r)
		if err == nil && b.careful && (r.kind == unix.NFT_MSG_NEWRULE || r.kind == unix.NFT_MSG_NEWSETELEM) {
			err = b.validate()
		}
		var no *rejection
		if errors.As(err, &no) {
			if b.kernel.vague {
				no.offset = 0
			}
			rejections = append(rejections, &wire.Rejection{
				Errno: no.errno, Kind: r.kind, Words: no.words, About: t.Blame(r.seq, no.offset),
			})
		}
	}
	return rejections
}

func (b *batch) apply(r request) error {
	if r.family != unix.NFPROTO_IPV4 && r.family != unix.NFPROTO_IPV6 &&
		(r.family != unix.NFPROTO_UNSPEC || r.kind != unix.NFT_MSG_DELTABLE) {
		return unknownf("family %d", r.family)
	}
	switch r.kind {
	case unix.NFT_MSG_NEWTABLE:
		return b.newTable(r)
	case unix.NFT_MSG_DELTABLE:
		return b.deleteTable(r)
	case unix.NFT_MSG_NEWCHAIN:
		return b.newChain(r)
	case unix.NFT_MSG_DELCHAIN:
		return b.deleteChain(r)
	case unix.NFT_MSG_NEWRULE:
		return b.newRule(r)
	case unix.NFT_MSG_DELRULE:
		return b.deleteRules(r)
	case unix.NFT_MSG_NEWSET:
		return b.newSet(r)
	case unix.NFT_MSG_DELSET:
		return b.deleteSet(r)
	case unix.NFT_MSG_NEWSETELEM:
		return b.newElements(r)
	case unix.NFT_MSG_DELSETELEM:
		return b.deleteElements(r)
	default:
		return unknownf("message type %d", r.kind)
	}
}

// do changes something and notes how to undo it.
func (b *batch) do(change, undo func()) {
	change()
	b.undo = append(b.undo, undo)
	b.changed = true
}

// count changes a number of references.
func (b *batch) count(use *int, n int) {
	b.do(func() { *use += n }, func() { *use -= n })
}

// rollBack undoes everything, the last change first.
func (b *batch) rollBack() {
	for i := len(b.undo) - 1; i >= 0; i-- {
		b.undo[i]()
	}
	b.undo = nil
}

// Writer returns the nftables backend's writer for one family, connected to the kernel.
// The kernel announces nothing to it.
func (k *Kernel) Writer(family service.Family) dataplane.Writer {
	w := nftkernel.NewWriter(family, nftkernel.WriterConfig{Open: k.Open}).Contract()
	w.Watch = func(ctx context.Context, _ func(dataplane.ForeignProcess)) error {
		<-ctx.Done()
		return ctx.Err()
	}
	return w
}
