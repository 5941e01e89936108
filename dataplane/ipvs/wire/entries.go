// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/internal/netlink"
)

// This file does not use the library for entries: the library sends one entry per message
// and waits for each answer, reads each attribute of a list over a channel, from a separate
// goroutine, and prints unknown attributes to the standard logger.

// Commands (enum ipset_cmd).
const (
	cmdList   = 7
	cmdAdd    = 9
	cmdDelete = 10
)

// Attributes of a message (enum of IPSET_ATTR_… at command level).
const (
	setProtocolAttr = 1
	setName         = 2
	setTypeName     = 3
	setFamily       = 5
	setFlags        = 6
	setData         = 7
	setList         = 8
	setLine         = 9
)

// Attributes inside of setData, of a set's header.
const (
	headerPort     = 4
	headerPortTo   = 5
	headerMaxElem  = 19
	headerElements = 24
)

// flagHeaderOnly is IPSET_FLAG_LIST_HEADER.
const flagHeaderOnly = 1 << 2

// begin starts a message of a command about a set. Without NLM_F_EXCL in the flags, adding an existing
// entry, or deleting a missing one, succeeds.
func begin(command, flags uint16, set string) (b []byte, mark int) {
	b = make([]byte, 0, 128)
	b, mark = netlink.BeginNetfilter(b, unix.NFNL_SUBSYS_IPSET, command, flags, unix.NFPROTO_IPV4)
	b = netlink.AppendUint8(b, setProtocolAttr, setProtocol)
	if set != "" {
		b = netlink.AppendText(b, setName, set)
	}
	return b, mark
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
	return s.change(ctx, cmdAdd, changes)
}

// Delete removes entries from sets as Add adds them. Removing a missing entry succeeds. For a
// missing set it returns ErrNoSet.
func (s *Sets) Delete(ctx context.Context, changes []EntryChange) []error {
	return s.change(ctx, cmdDelete, changes)
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
		b, mark := begin(command, unix.NLM_F_ACK, set)
		b = netlink.AppendUint32(b, setLine|network, 0)
		b, list := netlink.Nest(b, setList|nested)
		end := start
		for end < len(order) && changes[order[end]].Set == set && len(b) < listBytesMax {
			var line int
			b, line = netlink.Nest(b, setData|nested)
			b = netlink.AppendUint32(b, setLine|network, uint32(end-start+1))
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
	b, mark := begin(command, unix.NLM_F_ACK, c.Set)
	b, data := netlink.Nest(b, setData|nested)
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
	if command == cmdAdd {
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
			answers[at].line = netlink.Find(a.Request[netfilterBytes:], setLine).Uint32()
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

// List returns the sets whose names are wanted, all if wanted is nil, with their entries. Entries
// that are added or removed during the call may be missing or not. All others are listed once.
func (s *Sets) List(ctx context.Context, wanted func(name string) bool) ([]Set, error) {
	return s.list(ctx, "list sets", "", 0, wanted)
}

// Headers is List without entries.
func (s *Sets) Headers(ctx context.Context, wanted func(name string) bool) ([]Set, error) {
	return s.list(ctx, "list the headers of sets", "", flagHeaderOnly, wanted)
}

// Get returns one set with its entries. The error matches ErrNoSet if it does not exist.
func (s *Sets) Get(ctx context.Context, name string) (Set, error) {
	sets, err := s.list(ctx, "list "+name, name, 0, nil)
	if err == nil && len(sets) == 0 {
		err = setResult("list "+name, unix.ENOENT) // it was destroyed during the request
	}
	if err != nil {
		return Set{}, err
	}
	return sets[0], nil
}

func (s *Sets) list(
	ctx context.Context, what, name string, flags uint32, wanted func(string) bool,
) ([]Set, error) {
	request, mark := begin(cmdList, unix.NLM_F_DUMP, name)
	if flags != 0 {
		request = netlink.AppendUint32(request, setFlags|network, flags)
	}
	r := setReader{wanted: wanted}
	err := s.socket.Ask(ctx, netlink.Finish(request, mark), func(m netlink.Message) error {
		if part, ok := m.Netfilter(unix.NFNL_SUBSYS_IPSET); ok {
			r.read(part.Attrs)
		}
		return nil
	})
	if _, rejected := errors.AsType[syscall.Errno](err); rejected && !Unknown(err) {
		return nil, setResult(what, err)
	}
	if err != nil {
		return nil, fmt.Errorf("ipset: %s: %w", what, err)
	}
	return r.sets, nil
}

// setReader assembles sets from the messages of a dump. A large set is split over several
// messages, of which the first has the header.
type setReader struct {
	wanted func(name string) bool
	sets   []Set
}

func (r *setReader) read(attrs []byte) {
	name := netlink.Find(attrs, setName).Text()
	if r.wanted != nil && !r.wanted(name) {
		return
	}
	if last := len(r.sets) - 1; last < 0 || r.sets[last].Name != name {
		r.sets = append(r.sets, Set{SetSpec: SetSpec{Name: name}})
	}
	set := &r.sets[len(r.sets)-1]
	for a := range netlink.Attrs(attrs) {
		switch a.Type {
		case setTypeName:
			if len(set.Entries) == 0 { // otherwise they have the type of an earlier message
				set.Type = SetType(a.Text())
			}
		case setFamily:
			set.Family = Family(a.Uint8())
		case setData:
			set.readHeader(a.Data)
		case setList:
			set.readEntries(a.Data)
		}
	}
}

func (s *Set) readHeader(attrs []byte) {
	for a := range netlink.Attrs(attrs) {
		switch a.Type {
		case headerMaxElem:
			s.MaxElem = a.Uint32()
		case headerPort:
			s.FirstPort = a.Uint16()
		case headerPortTo:
			s.LastPort = a.Uint16()
		case headerElements:
			s.Count = a.Uint32()
		}
	}
}

func (s *Set) readEntries(attrs []byte) {
	if !s.Type.Known() {
		return
	}
	for a := range netlink.Attrs(attrs) {
		if e, ok := readEntry(s.Type, a.Data); ok && a.Type == setData {
			s.Entries = append(s.Entries, e)
		}
	}
}
