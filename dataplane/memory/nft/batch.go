package nft

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane/nftables/wire"
)

// batch is one transaction at work: it changes the kernel at once, and notes how
// to take each change back.
type batch struct {
	kernel *Kernel
	now    time.Time
	undo   []func()
	// changed is set by whatever makes the kernel count a generation.
	changed bool
	// suspicious are tables in which something was added that has to be
	// validated.
	suspicious map[*table]bool
	// careful validates after each message, which finds the one to blame.
	careful bool
}

// commit carries a transaction out, or gives what is refused of it and leaves
// everything as it was.
func (k *Kernel) commit(t *wire.Transaction) []*wire.Refusal {
	k.mu.Lock()
	defer k.mu.Unlock()
	requests := requestsOf(t)
	b := k.begin(false)
	refusals := b.run(t, requests)
	if len(refusals) == 0 && b.validate() != nil {
		b.rollBack()
		b = k.begin(true)
		refusals = b.run(t, requests)
	}
	if len(refusals) > 0 {
		b.rollBack()
		return refusals
	}
	if b.changed {
		k.generation++
	}
	return nil
}

func (k *Kernel) begin(careful bool) *batch {
	return &batch{kernel: k, now: k.now(), suspicious: make(map[*table]bool), careful: careful}
}

// run goes through all messages. After a refusal it goes on, as the kernel does,
// which names everything that is wrong at once.
func (b *batch) run(t *wire.Transaction, requests []request) []*wire.Refusal {
	var refusals []*wire.Refusal
	for _, r := range requests {
		err := b.apply(r)
		if err == nil && b.careful && (r.kind == unix.NFT_MSG_NEWRULE || r.kind == unix.NFT_MSG_NEWSETELEM) {
			err = b.validate()
		}
		var no *refusal
		if errors.As(err, &no) {
			refusals = append(refusals, &wire.Refusal{
				Errno: no.errno, Kind: r.kind, Words: no.words, About: t.Blame(r.seq, no.offset),
			})
		}
	}
	return refusals
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

// do changes something and notes how to take it back.
func (b *batch) do(change, undo func()) {
	change()
	b.undo = append(b.undo, undo)
	b.changed = true
}

// count changes a number of references.
func (b *batch) count(use *int, n int) {
	b.do(func() { *use += n }, func() { *use -= n })
}

// rollBack takes everything back, the last change first.
func (b *batch) rollBack() {
	for i := len(b.undo) - 1; i >= 0; i-- {
		b.undo[i]()
	}
	b.undo = nil
}
