// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"errors"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/internal/netlink"
)

// example has a message about 1, two messages about 2, and one with elements 3 and 4, whose
// notes follow the message's head.
func example() *Transaction {
	t := NewTransaction(unix.NFPROTO_IPV4)
	t.Note(1)
	t.Begin(unix.NFT_MSG_NEWTABLE, unix.NLM_F_CREATE)
	t.Text(1, "table")
	t.Note(2)
	t.Begin(unix.NFT_MSG_NEWRULE, unix.NLM_F_CREATE)
	t.Text(1, "table")
	t.Begin(unix.NFT_MSG_NEWRULE, unix.NLM_F_CREATE)
	t.Text(1, "table")
	t.Begin(unix.NFT_MSG_NEWSETELEM, unix.NLM_F_CREATE)
	t.Text(1, "table")
	list := t.Nest(3)
	t.Note(3)
	t.Uint32(1, 10)
	t.Note(4)
	t.Uint32(1, 11)
	t.Unnest(list)
	return t
}

func TestTransaction_Blame(t *testing.T) {
	e := example()
	e.seal()
	// The layout of the last message: head 20, table name 12, list head 4.
	for name, c := range map[string]struct {
		seq    uint32
		offset int
		want   []int
	}{
		"the batch as a whole":              {1, 0, nil},
		"a message":                         {2, 0, []int{1}},
		"the first of two messages":         {3, 20, []int{2}},
		"the second of two messages":        {4, 20, []int{2}},
		"elements without a hint":           {5, 0, []int{3, 4}},
		"the head of a message of elements": {5, 20, []int{3, 4}},
		"the first element":                 {5, 36, []int{3}},
		"inside the first element":          {5, 40, []int{3}},
		"the second element":                {5, 44, []int{4}},
		"the end of the batch":              {6, 0, nil},
		"no message at all":                 {77, 0, nil},
	} {
		if got := e.Blame(c.seq, c.offset); !slices.Equal(got, c.want) {
			t.Errorf("%s: blamed %v, want %v", name, got, c.want)
		}
	}
}

// TestTransaction_BatchBytes reads the messages as the kernel does.
func TestTransaction_BatchBytes(t *testing.T) {
	e := example()
	e.seal()
	var kinds, flags []uint16
	var seqs []uint32
	for m := range netlink.Messages(e.buf) {
		kinds, flags, seqs = append(kinds, m.Kind), append(flags, m.Flags), append(seqs, m.Seq)
	}
	tables := func(kind uint16) uint16 { return unix.NFNL_SUBSYS_NFTABLES<<8 | kind }
	if want := []uint16{
		unix.NFNL_MSG_BATCH_BEGIN, tables(unix.NFT_MSG_NEWTABLE), tables(unix.NFT_MSG_NEWRULE),
		tables(unix.NFT_MSG_NEWRULE), tables(unix.NFT_MSG_NEWSETELEM), unix.NFNL_MSG_BATCH_END,
	}; !slices.Equal(kinds, want) {
		t.Errorf("messages %v, want %v", kinds, want)
	}
	if !slices.Equal(seqs, []uint32{1, 2, 3, 4, 5, 6}) {
		t.Errorf("sequence numbers %v", seqs)
	}
	for i, f := range flags {
		if last := i == len(flags)-2; (f&unix.NLM_F_ACK != 0) != last {
			t.Errorf("message %d: flags %#x; only the last but the end asks for an answer", i, f)
		}
	}
}

func TestRejection_Error(t *testing.T) {
	r := &Rejection{Errno: unix.EEXIST, Kind: unix.NFT_MSG_NEWSETELEM, Words: "overlaps"}
	if got, want := r.Error(), "add element: file exists (overlaps)"; got != want || !errors.Is(r, unix.EEXIST) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestTransaction_ReuseAfterReset: a transaction is like a new one after Reset, in its bytes and in what is to blame.
func TestTransaction_ReuseAfterReset(t *testing.T) {
	again, fresh := example(), NewTransaction(unix.NFPROTO_IPV4)
	again.seal()
	again.Reset()
	for _, tx := range []*Transaction{again, fresh} {
		tx.Note(7)
		tx.Begin(unix.NFT_MSG_NEWTABLE, unix.NLM_F_CREATE)
		tx.Text(1, "other")
		tx.seal()
	}
	if !slices.Equal(again.buf, fresh.buf) || again.Messages() != 1 || !slices.Equal(again.Blame(firstSeq, 0), []int{7}) {
		t.Errorf("%d messages, %v to blame; %d bytes, want %d", again.Messages(), again.Blame(firstSeq, 0), len(again.buf), len(fresh.buf))
	}
}
