package wire

import (
	"encoding/binary"
	"slices"

	"golang.org/x/sys/unix"
)

// Transaction is a list of changes that the kernel makes together or not at
// all. Its user adds messages in the order in which they depend on each other,
// and notes which part of them stands for what. Not safe for concurrent use.
type Transaction struct {
	family uint8
	buf    []byte
	// message is where the open message starts, 0 when none is.
	message int
	// starts are where the messages start; the one at index i has the sequence
	// number firstSeq+i.
	starts []int
	notes  []note
	sealed bool
}

// note says what is found from an offset on.
type note struct {
	offset int
	what   int
}

// Sequence numbers mean something within one exchange only: the kernel has
// answered all of it before the next one starts.
const (
	beginSeq = 1
	firstSeq = 2
)

// NewTransaction starts a transaction on tables of one family (NFPROTO_…).
func NewTransaction(family uint8) *Transaction {
	t := &Transaction{family: family}
	t.buf, _ = open(t.buf, unix.NFNL_MSG_BATCH_BEGIN, 0, beginSeq, unix.AF_UNSPEC, unix.NFNL_SUBSYS_NFTABLES)
	t.buf = shut(t.buf, 0)
	return t
}

// Grow makes room for so many more bytes and notes, which saves copying.
func (t *Transaction) Grow(bytes, notes int) {
	t.buf = slices.Grow(t.buf, bytes)
	t.notes = slices.Grow(t.notes, notes)
}

// Begin starts a message of a kind (NFT_MSG_…) with flags (NLM_F_…).
func (t *Transaction) Begin(kind, flags uint16) {
	t.End()
	seq := uint32(firstSeq + len(t.starts))
	t.starts = append(t.starts, len(t.buf))
	t.buf, t.message = open(t.buf, unix.NFNL_SUBSYS_NFTABLES<<8|kind, flags, seq, t.family, 0)
}

// End closes the open message, if any.
func (t *Transaction) End() {
	if t.message != 0 {
		t.buf = shut(t.buf, t.message)
		t.message = 0
	}
}

// Note says that what is added from here on, until the next note, stands for
// something that the user numbers as he likes.
func (t *Transaction) Note(what int) { t.notes = append(t.notes, note{len(t.buf), what}) }

// Add changes the buffer by one of the Append functions and the like.
func (t *Transaction) Add(change func([]byte) []byte) { t.buf = change(t.buf) }

// Text adds an attribute to the open message.
func (t *Transaction) Text(kind uint16, text string) { t.buf = AppendText(t.buf, kind, text) }

// Uint32 adds an attribute to the open message.
func (t *Transaction) Uint32(kind uint16, n uint32) { t.buf = AppendUint32(t.buf, kind, n) }

// Raw adds attributes to the open message as they are.
func (t *Transaction) Raw(attrs string) { t.buf = append(t.buf, attrs...) }

// Nest opens an attribute in the open message; close it with Unnest.
func (t *Transaction) Nest(kind uint16) (mark int) {
	t.buf, mark = Nest(t.buf, kind)
	return mark
}

// Unnest closes what Nest opened.
func (t *Transaction) Unnest(mark int) { t.buf = End(t.buf, mark) }

// Messages is the number of messages so far.
func (t *Transaction) Messages() int { return len(t.starts) }

// Bytes is the size so far.
func (t *Transaction) Bytes() int { return len(t.buf) }

// MessageBytes is the size of the open message so far.
func (t *Transaction) MessageBytes() int { return len(t.buf) - t.message }

// seal ends the batch. The last message asks for an answer, from which the
// sender learns that all has been heard.
func (t *Transaction) seal() {
	if t.sealed {
		return
	}
	t.sealed = true
	t.End()
	if last := len(t.starts) - 1; last >= 0 {
		flags := t.buf[t.starts[last]+6:]
		binary.NativeEndian.PutUint16(flags, binary.NativeEndian.Uint16(flags)|unix.NLM_F_ACK)
	}
	mark := 0
	t.buf, mark = open(t.buf, unix.NFNL_MSG_BATCH_END, 0, uint32(firstSeq+len(t.starts)), unix.AF_UNSPEC, unix.NFNL_SUBSYS_NFTABLES)
	t.buf = shut(t.buf, mark)
}

// lastSeq is the sequence number of the message that is answered in any case.
func (t *Transaction) lastSeq() uint32 { return uint32(firstSeq + len(t.starts) - 1) }

// Blame gives what the notes say about a message of the transaction, by its
// sequence number, or about the attribute at an offset of it (0 for the message).
// It is for those who answer in the kernel's stead.
func (t *Transaction) Blame(seq uint32, offset int) []int { return t.blame(seq, offset) }

// blame gives what a refusal is about. When the kernel gave an offset into the
// message that is behind a note of the message, it is that note; otherwise all
// notes of the message, or, if it has none, the one that was in force before it.
// Nothing when the refusal is about the batch as a whole.
func (t *Transaction) blame(seq uint32, offset int) []int {
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
