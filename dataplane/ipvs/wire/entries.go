// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/internal/netlink"
)

// This file does not use the library for changes of entries: the library sends one entry per message
// and waits for each answer, and the kernel rejects its entries of type bitmap:port, because it gives
// them a protocol (vishvananda/netlink, issue 1054).

// begin starts a message of a command about a set. Without NLM_F_EXCL, adding an existing entry, or
// deleting a missing one, succeeds.
func begin(command uint16, set string) (b []byte, mark int) {
	b, mark = netlink.BeginNetfilter(
		make([]byte, 0, 128), unix.NFNL_SUBSYS_IPSET, command, unix.NLM_F_ACK, unix.NFPROTO_IPV4)
	b = netlink.AppendUint8(b, nl.IPSET_ATTR_PROTOCOL, setProtocol)
	return netlink.AppendText(b, nl.IPSET_ATTR_SETNAME, set), mark
}

// EntryChange is an entry to add to a set or to remove from it.
type EntryChange struct {
	Set   string
	Entry Entry
}

const (
	// listBytesMax limits a message with several entries. Its list must stay below 64 KiB,
	// and if the kernel rejects an entry, its answer repeats the message.
	listBytesMax = 16 << 10
	// sendBytesMax limits a send, such that the answers fit into the receive buffer even if
	// each repeats its message. There is room for 4 lists, each of which exceeds listBytesMax
	// by less than one entry.
	sendBytesMax = 4 * (listBytesMax + 256)
	// sendMessagesMax limits the number of messages for the same reason: even the answer to
	// a short message takes about 1 KiB of the buffer.
	sendMessagesMax = 64
)

// Add adds entries to sets. Adding an existing entry succeeds. The order of the changes does
// not matter. Entries of one set share messages (400 of type hash:ip,port fit into one),
// and 4 such messages share a send. If one entry is rejected, the entries after it in its
// message are sent again, each in a separate message.
func (s *Sets) Add(ctx context.Context, changes []EntryChange) []error {
	return s.change(ctx, nl.IPSET_CMD_ADD, changes)
}

// Delete removes entries from sets as Add adds them. Removing a missing entry succeeds. For a
// missing set it returns ErrNoSet.
func (s *Sets) Delete(ctx context.Context, changes []EntryChange) []error {
	return s.change(ctx, nl.IPSET_CMD_DEL, changes)
}

func (s *Sets) change(ctx context.Context, command uint16, changes []EntryChange) []error {
	results := make([]error, len(changes))
	lists := packEntries(command, changes)
	messages := make([][]byte, len(lists))
	for i, l := range lists {
		messages[i] = l.message
	}
	var again []int
	for i, a := range s.exchange(ctx, messages) {
		again = append(again, lists[i].settle(command, changes, a, results)...)
	}
	singles := make([][]byte, len(again))
	for i, at := range again {
		singles[i] = entryMessage(command, changes[at])
	}
	for i, a := range s.exchange(ctx, singles) {
		results[again[i]] = setResult(describe(command, changes[again[i]]), a.err)
	}
	return results
}

// entryList is a message with several entries of one set.
type entryList struct {
	message []byte
	// about has the index of the change for each line of the message.
	about []int
}

// packEntries puts changes into messages. The kernel processes the entries of a message one
// after the other, and stops at the first that it rejects. Its answer then repeats the message,
// with the line attribute set to that of the rejected entry (call_ad in ip_set_core.c). Lines
// count from 1.
func packEntries(command uint16, changes []EntryChange) []entryList {
	order := make([]int, len(changes))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return strings.Compare(changes[a].Set, changes[b].Set)
	})
	var all []entryList
	for start := 0; start < len(order); {
		set := changes[order[start]].Set
		b, mark := begin(command, set)
		b = netlink.AppendUint32(b, nl.IPSET_ATTR_LINENO|network, 0)
		b, list := netlink.Nest(b, nl.IPSET_ATTR_ADT|nested)
		end := start
		for end < len(order) && changes[order[end]].Set == set && len(b) < listBytesMax {
			var line int
			b, line = netlink.Nest(b, nl.IPSET_ATTR_DATA|nested)
			b = netlink.AppendUint32(b, nl.IPSET_ATTR_LINENO|network, uint32(end-start+1))
			b = netlink.End(changes[order[end]].Entry.append(b), line)
			end++
		}
		b = netlink.Finish(netlink.End(b, list), mark)
		all = append(all, entryList{message: b, about: order[start:end]})
		start = end
	}
	return all
}

// entryMessage returns a message that adds or deletes one entry. The kernel answers it like any request.
func entryMessage(command uint16, c EntryChange) []byte {
	b, mark := begin(command, c.Set)
	b, data := netlink.Nest(b, nl.IPSET_ATTR_DATA|nested)
	return netlink.Finish(netlink.End(c.Entry.append(b), data), mark)
}

// setAnswer is the kernel's answer to a message about entries.
type setAnswer struct {
	err error
	// line is that of the rejected entry of a list, or 0 if the message was rejected before
	// its first entry.
	line uint32
}

// settle notes the results that follow from the answer to the list. It returns the indexes of the
// changes to be sent again, each in a separate message: those after a rejected entry, and all if the
// answer was lost or does not name an entry. Repeating a change does no harm.
func (l entryList) settle(
	command uint16, changes []EntryChange, a setAnswer, results []error,
) (again []int) {
	line := int(a.line)
	_, kept := errors.AsType[*NotSentError](a.err)
	switch {
	case a.err == nil:
		return nil
	case line >= 1 && line <= len(l.about):
		at := l.about[line-1]
		results[at] = setResult(describe(command, changes[at]), a.err)
		return l.about[line:]
	case kept, errors.Is(a.err, unix.ENOENT):
		for _, at := range l.about {
			results[at] = setResult(describe(command, changes[at]), a.err)
		}
		return nil
	}
	return l.about
}

func describe(command uint16, c EntryChange) string {
	if command == nl.IPSET_CMD_ADD {
		return "add " + c.Entry.String() + " to " + c.Set
	}
	return "delete " + c.Entry.String() + " from " + c.Set
}

// exchange sends messages, several in one send, and returns the answer to each. The kernel
// has carried out a message when the send returns. The context is checked between sends.
func (s *Sets) exchange(ctx context.Context, messages [][]byte) []setAnswer {
	answers := make([]setAnswer, len(messages))
	for start := 0; start < len(messages); {
		var b []byte
		end := start
		for end < len(messages) && end-start < sendMessagesMax &&
			(end == start || len(b)+len(messages[end]) <= sendBytesMax) {
			b = append(b, messages[end]...)
			end++
		}
		if err := unsent(ctx); err != nil {
			for i := range answers[start:] {
				answers[start+i].err = err
			}
			return answers
		}
		s.send(b, answers[start:end])
		start = end
	}
	return answers
}

// send sends messages and fills in the answers.
func (s *Sets) send(b []byte, answers []setAnswer) {
	heard := make([]bool, len(answers))
	err := s.socket.Exchange(b, func(at int, a netlink.Answer) {
		heard[at] = true
		answers[at].err = a.Err()
		if len(a.Request) > netfilterBytes {
			answers[at].line = netlink.Find(a.Request[netfilterBytes:], nl.IPSET_ATTR_LINENO).Uint32()
		}
	})
	if err == nil {
		err = ErrUnanswered // each message requests an answer
	}
	for i := range answers {
		if !heard[i] {
			answers[i].err = err
		}
	}
}

// netfilterBytes is the size of the header between the message header and the attributes.
const netfilterBytes = 4
