// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/binary"
	"iter"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/internal/netlink"
)

// Transaction is a list of changes that the kernel makes together or not at all. The caller adds
// messages in the order in which they depend on each other, and notes to which change each part of
// them belongs. It is not safe for concurrent use.
type Transaction struct {
	family uint8
	buf    []byte
	// message is the offset of the open message, 0 if none is open.
	message int
	// starts are the offsets of the messages. The message at index i has the sequence number
	// firstSeq+i within the transaction; the socket adds its own count.
	starts []int
	notes  []note
	sealed bool
	// echo receives the kernel's echoes of messages with NLM_F_ECHO; nil for none.
	echo func(Message)
}

// note is the caller's number for the bytes from an offset on.
type note struct {
	offset int
	what   int
}

// The sequence numbers of the beginning of the batch and of its first message.
const (
	beginSeq = 1
	firstSeq = 2
)

// NewTransaction begins a transaction on tables of one family (NFPROTO_…).
func NewTransaction(family uint8) *Transaction {
	t := &Transaction{family: family}
	t.buf = appendFrame(t.buf, unix.NFNL_MSG_BATCH_BEGIN, beginSeq)
	return t
}

// Reset empties the transaction and keeps its memory, for another one of the same family.
func (t *Transaction) Reset() {
	*t = Transaction{family: t.family, buf: t.buf[:0], starts: t.starts[:0], notes: t.notes[:0]}
	t.buf = appendFrame(t.buf, unix.NFNL_MSG_BATCH_BEGIN, beginSeq)
}

// appendFrame adds the message that begins or ends a batch.
func appendFrame(b []byte, kind uint16, seq uint32) []byte {
	b, mark := netlink.Begin(b, kind, 0)
	netlink.SetSeq(b[mark:], seq)
	b = append(b, unix.AF_UNSPEC, unix.NFNETLINK_V0)
	return netlink.Finish(binary.BigEndian.AppendUint16(b, unix.NFNL_SUBSYS_NFTABLES), mark)
}

// Grow makes room for the given numbers of further bytes and notes, which saves copying.
func (t *Transaction) Grow(bytes, notes int) {
	t.buf = slices.Grow(t.buf, bytes)
	t.notes = slices.Grow(t.notes, notes)
}

// Begin begins a message of a kind (NFT_MSG_…) with flags (NLM_F_…).
func (t *Transaction) Begin(kind, flags uint16) {
	t.End()
	seq := uint32(firstSeq + len(t.starts))
	t.starts = append(t.starts, len(t.buf))
	t.buf, t.message = netlink.BeginNetfilter(t.buf, unix.NFNL_SUBSYS_NFTABLES, kind, flags, t.family)
	netlink.SetSeq(t.buf[t.message:], seq)
}

// Listen sets the function that receives the kernel's echoes of messages with NLM_F_ECHO, if the transaction
// lands. An echo is valid only during the call.
func (t *Transaction) Listen(echo func(Message)) { t.echo = echo }

// Echo passes a message to the function of Listen. It is exported for replacements of the kernel in tests.
func (t *Transaction) Echo(m Message) {
	if t.echo != nil {
		t.echo(m)
	}
}

// End closes the open message, if any.
func (t *Transaction) End() {
	if t.message != 0 {
		t.buf = netlink.Finish(t.buf, t.message)
		t.message = 0
	}
}

// Note notes the caller's number for the bytes from here to the next note. Blame returns these
// numbers.
func (t *Transaction) Note(what int) { t.notes = append(t.notes, note{len(t.buf), what}) }

// Add adds attributes to the open message with a function that appends them.
func (t *Transaction) Add(change func([]byte) []byte) { t.buf = change(t.buf) }

// Text adds an attribute to the open message.
func (t *Transaction) Text(kind uint16, text string) { t.buf = netlink.AppendText(t.buf, kind, text) }

// Uint32 adds an attribute to the open message.
func (t *Transaction) Uint32(kind uint16, n uint32) { t.buf = netlink.AppendUint32(t.buf, kind, n) }

// Raw adds encoded attributes to the open message.
func (t *Transaction) Raw(attrs string) { t.buf = append(t.buf, attrs...) }

// Nest opens an attribute in the open message. Unnest closes it.
func (t *Transaction) Nest(kind uint16) (mark int) {
	t.buf, mark = netlink.Nest(t.buf, kind)
	return mark
}

// Unnest closes the attribute that Nest opened.
func (t *Transaction) Unnest(mark int) { t.buf = netlink.End(t.buf, mark) }

// Messages returns the number of messages so far.
func (t *Transaction) Messages() int { return len(t.starts) }

// All iterates over the messages between the two that frame the batch. It closes the open message.
func (t *Transaction) All() iter.Seq[netlink.Message] {
	return func(yield func(netlink.Message) bool) {
		t.End()
		for m := range netlink.Messages(t.buf) {
			if m.Kind>>8 == unix.NFNL_SUBSYS_NFTABLES && !yield(m) {
				return
			}
		}
	}
}

// Bytes returns the size so far.
func (t *Transaction) Bytes() int { return len(t.buf) }

// MessageBytes returns the size of the open message so far.
func (t *Transaction) MessageBytes() int { return len(t.buf) - t.message }

// seal ends the batch. The last message requests an answer; its arrival shows that no answer was
// lost.
func (t *Transaction) seal() {
	if t.sealed {
		return
	}
	t.sealed = true
	t.End()
	if last := len(t.starts) - 1; last >= 0 {
		netlink.AddFlags(t.buf[t.starts[last]:], unix.NLM_F_ACK)
	}
	t.buf = appendFrame(t.buf, unix.NFNL_MSG_BATCH_END, uint32(firstSeq+len(t.starts)))
}

// rejection translates the answer to the message with an index in the batch.
func (t *Transaction) rejection(at int, a netlink.Answer) *Rejection {
	r := &Rejection{Errno: a.Errno, Words: a.Text, About: t.Blame(uint32(beginSeq+at), a.Offset)}
	if i := beginSeq + at - firstSeq; i >= 0 && i < len(t.starts) {
		r.Kind = binary.NativeEndian.Uint16(t.buf[t.starts[i]+4:]) & 0xff
	}
	return r
}

// Blame returns the numbers that were noted for the message with a sequence number, or for the
// attribute at an offset in it. It is exported for replacements of the kernel in tests.
//
// If the offset is behind a note in the message, Blame returns the last such note. Otherwise it
// returns all notes in the message or, if there are none, the last note before it. It returns none
// for a rejection of the batch as a whole.
func (t *Transaction) Blame(seq uint32, offset int) []int {
	at := int(seq) - firstSeq
	if at < 0 || at >= len(t.starts) {
		return nil
	}
	start, end := t.starts[at], len(t.buf)
	if at+1 < len(t.starts) {
		end = t.starts[at+1]
	}
	first, next := t.notesBefore(start), t.notesBefore(end)
	if offset > 0 {
		if last := t.notesBefore(start + offset + 1); last > first {
			return []int{t.notes[last-1].what}
		}
	}
	if first == next && first > 0 {
		first--
	}
	var blamed []int
	for _, n := range t.notes[first:next] {
		if !slices.Contains(blamed, n.what) {
			blamed = append(blamed, n.what)
		}
	}
	return blamed
}

// notesBefore counts the notes before an offset.
func (t *Transaction) notesBefore(offset int) int {
	count, _ := slices.BinarySearchFunc(t.notes, offset, func(n note, offset int) int { return n.offset - offset })
	return count
}
