package ipset

import (
	"context"
	"errors"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Change is an entry that comes into a set or leaves it.
type Change struct {
	Set   string
	Entry Entry
}

// listBytesMax bounds a message with several entries. Its list must stay below
// 64 KiB, and the kernel repeats a message of which it refuses an entry.
const listBytesMax = 16 << 10

// Add adds entries to sets, and gives a result per entry. An entry that is there
// already is success. The order of the changes does not matter. Entries of one
// set share messages (400 of the type hash:ip,port fit into one), and 4 such
// messages a send; where one entry is refused, those behind it in its message are
// sent again, each in a message of its own.
func (s *Socket) Add(ctx context.Context, changes []Change) []error {
	return s.change(ctx, cmdAdd, changes)
}

// Delete removes entries from sets as Add adds them. An entry that is not there
// is success; a set that is not there is ErrNoSet.
func (s *Socket) Delete(ctx context.Context, changes []Change) []error {
	return s.change(ctx, cmdDelete, changes)
}

func (s *Socket) change(ctx context.Context, command uint8, changes []Change) []error {
	results := make([]error, len(changes))
	lists := s.lists(command, changes)
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
		singles[i] = entryMessage(command, s.protocol, changes[at].Set, changes[at].Entry)
	}
	for i, a := range s.exchange(ctx, singles) {
		results[again[i]] = outcome(describe(command, changes[again[i]]), a)
	}
	return results
}

// list is a message with several entries of one set.
type list struct {
	message []byte
	// about are the numbers of the changes in it, line by line.
	about []int
}

// lists puts changes into messages.
func (s *Socket) lists(command uint8, changes []Change) []list {
	order := make([]int, len(changes))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return strings.Compare(changes[a].Set, changes[b].Set) })
	var all []list
	for start := 0; start < len(order); {
		set := changes[order[start]].Set
		b, mark := listMessage(command, s.protocol, set)
		end := start
		for end < len(order) && changes[order[end]].Set == set && len(b) < listBytesMax {
			b = appendLine(b, end-start+1, changes[order[end]].Entry)
			end++
		}
		all = append(all, list{message: sealList(b, mark), about: order[start:end]})
		start = end
	}
	return all
}

// settle tells the results of those changes of which the answer to the list is
// certain, and gives the numbers of those to be sent again, singly: what comes
// behind a refused entry, and everything when the answer was lost or says nothing
// about entries. Doing so twice does no harm.
func (l list) settle(command uint8, changes []Change, a answer, results []error) (again []int) {
	line := int(a.line)
	switch {
	case a.err == nil && a.errno == 0:
		return nil
	case a.err == nil && line >= 1 && line <= len(l.about):
		at := l.about[line-1]
		results[at] = outcome(describe(command, changes[at]), a)
		return l.about[line:]
	case a.err != nil && !errors.Is(a.err, ErrUnanswered), a.errno == unix.ENOENT:
		for _, at := range l.about {
			results[at] = outcome(describe(command, changes[at]), a)
		}
		return nil
	}
	return l.about
}

func describe(command uint8, c Change) string {
	if command == cmdAdd {
		return "add " + c.Entry.String() + " to " + c.Set
	}
	return "delete " + c.Entry.String() + " from " + c.Set
}
