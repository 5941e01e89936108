// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	library "github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// TestPackEntries_Bytes compares messages with their bytes according to the kernel's headers, on a little-endian
// machine.
func TestPackEntries_Bytes(t *testing.T) {
	second, err := ParseEntry(HashIPPortNet, "fd00::1,sctp:80,fd00::/64")
	if err != nil {
		t.Fatal(err)
	}
	list := packEntries(nl.IPSET_CMD_ADD, []EntryChange{{"P", Entry{Port: 30080}}, {"P", Entry{Port: 80}}})[0].message
	for name, c := range map[string]struct {
		got  []byte
		want string
	}{
		"add one": {entryMessage(nl.IPSET_CMD_ADD, EntryChange{"N", second}), `
			70000000 0906 0500 00000000 00000000 # length, add, request+ack
			02 00 0000
			0500 0100 06000000                   # protocol
			0600 0200 4e000000                   # name
			4c00 0780                            # data, nested
			1800 0180 1400 0240 fd000000000000000000000000000001
			0600 0440 00500000
			0500 0700 84000000
			1800 1480 1400 0240 fd000000000000000000000000000000
			0500 1500 40000000`},
		"add several": {list, `
			58000000 0906 0500 00000000 00000000
			02 00 0000
			0500 0100 06000000
			0600 0200 50000000
			0800 0940 00000000                   # line of the message
			2c00 0880                            # list
			1400 0780 0800 0940 00000001 0600 0440 75800000
			1400 0780 0800 0940 00000002 0600 0440 00500000`},
	} {
		if want := unhex(t, c.want); !slices.Equal(c.got, want) {
			t.Errorf("%s:\n got %x\nwant %x", name, c.got, want)
		}
	}
}

// TestPackEntries: every change is in exactly one message of its set, in the caller's order, and no message is too
// long.
func TestPackEntries(t *testing.T) {
	var changes []EntryChange
	for i := range 3000 {
		set := []string{"B", "A", "C"}[i%3]
		changes = append(changes, EntryChange{set, Entry{Addr: addr("10.0.0.1"), Protocol: TCP, Port: uint16(i)}})
	}
	seen := make([]bool, len(changes))
	lists := packEntries(nl.IPSET_CMD_ADD, changes)
	if len(lists) != 9 { // 1000 entries of a set, about 400 in a message
		t.Errorf("%d messages", len(lists))
	}
	for _, l := range lists {
		if len(l.message) > listBytesMax+256 || len(l.message)*4 > sendBytesMax {
			t.Errorf("a message of %d bytes", len(l.message))
		}
		last := -1
		for _, at := range l.about {
			if seen[at] || changes[at].Set != changes[l.about[0]].Set || at < last {
				t.Fatalf("change %d is in the wrong place", at)
			}
			seen[at], last = true, at
		}
	}
	if slices.Contains(seen, false) {
		t.Error("a change is in no message")
	}
	if got := packEntries(nl.IPSET_CMD_ADD, nil); len(got) != 0 {
		t.Errorf("no changes make %d messages", len(got))
	}
}

func TestEntryList_Settle(t *testing.T) {
	changes := []EntryChange{{"P", Entry{Port: 1}}, {"P", Entry{Port: 2}}, {"P", Entry{Port: 3}}}
	l := entryList{about: []int{0, 1, 2}}
	for name, c := range map[string]struct {
		answer setAnswer
		want   string // a letter per change: done, rejected, failed
		again  []int
	}{
		"yes":                    {setAnswer{}, "ddd", nil},
		"the second is rejected": {setAnswer{err: errnoHashFull, line: 2}, "drd", []int{2}},
		"the last is rejected":   {setAnswer{err: errnoHashFull, line: 3}, "ddr", nil},
		"no such set":            {setAnswer{err: unix.ENOENT}, "rrr", nil},
		"no without a line":      {setAnswer{err: unix.EINVAL}, "ddd", []int{0, 1, 2}},
		"a line that is no line": {setAnswer{err: errnoHashFull, line: 9}, "ddd", []int{0, 1, 2}},
		"the answer was lost":    {setAnswer{err: ErrUnanswered}, "ddd", []int{0, 1, 2}},
		"not sent":               {setAnswer{err: &NotSentError{Err: unix.EMSGSIZE}}, "fff", nil},
		"not tried":              {setAnswer{err: &NotSentError{Err: context.Canceled}}, "fff", nil},
	} {
		results := make([]error, 3)
		again := l.settle(nl.IPSET_CMD_ADD, changes, c.answer, results)
		got := ""
		for _, err := range results {
			var no *SetRejection
			switch {
			case err == nil:
				got += "d"
			case errors.As(err, &no):
				got += "r"
			default:
				got += "f"
			}
		}
		if got != c.want || !slices.Equal(again, c.again) {
			t.Errorf("%s: %s, again %v; want %s, %v", name, got, again, c.want, c.again)
		}
	}
}

func TestSetResult(t *testing.T) {
	for want, c := range map[string]struct{ err, is error }{
		"ipset: add 80 to P: the set is full":                               {errnoHashFull, ErrFull},
		"ipset: add 80 to P: no such set":                                   {unix.ENOENT, ErrNoSet},
		"ipset: add 80 to P: a different set of that name exists":           {unix.EEXIST, ErrDifferent},
		"ipset: add 80 to P: the set is in use":                             {nl.IPSetError(nl.IPSET_ERR_REFERENCED), ErrInUse},
		"ipset: add 80 to P: cannot allocate memory":                        {unix.ENOMEM, unix.ENOMEM},
		"ipset: add 80 to P: netlink: the kernel's answer was lost":         {ErrUnanswered, ErrUnanswered},
		"ipset: add 80 to P: send to the kernel: context canceled":          {&NotSentError{Err: context.Canceled}, context.Canceled},
		"ipset: add 80 to P: send to the kernel: no buffer space available": {&NotSentError{Err: unix.ENOBUFS}, unix.ENOBUFS},
	} {
		err := setResult("add 80 to P", c.err)
		if err == nil || !strings.HasPrefix(err.Error(), want) || !errors.Is(err, c.is) || Unknown(err) != (c.is == ErrUnanswered) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	for _, lost := range []error{unix.ENOBUFS, unix.EAGAIN, errors.New("wrong sender")} {
		if err := setResult("list", lost); !Unknown(err) {
			t.Errorf("%v counts as an answer: %v", lost, err)
		}
	}
	if err := setResult("list", nil); err != nil {
		t.Error(err)
	}
}

func TestSupported_Protocol(t *testing.T) {
	for name, c := range map[string]struct {
		newest, oldest uint8
		err            error
		unsupported    bool
	}{
		"the same": {6, 6, nil, false}, "newer": {7, 6, nil, false}, "too old": {5, 5, nil, true}, "too new": {9, 8, nil, true},
		"no module": {0, 0, unix.EINVAL, true},
	} {
		if err := supported(c.newest, c.oldest, c.err); errors.Is(err, ErrUnsupported) != c.unsupported || (err != nil) != c.unsupported {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSet_Capacity(t *testing.T) {
	for name, c := range map[string]struct {
		set      Set
		capacity uint32
	}{
		"a hash":    {Set{SetSpec: SetSpec{Type: HashIP, MaxElem: 10}, Count: 7}, 10},
		"a bitmap":  {Set{SetSpec: SetSpec{Type: BitmapPort}, LastPort: 65535, Count: 65536}, 65536},
		"not known": {Set{SetSpec: SetSpec{Type: "list:set"}, Count: 8}, 0},
	} {
		if got := c.set.Capacity(); got != c.capacity {
			t.Errorf("%s: %d", name, got)
		}
	}
}

// TestSetSpec_Text: a spec is printed as its type and its family.
func TestSetSpec_Text(t *testing.T) {
	for want, s := range map[string]SetSpec{
		"hash:ip,port inet":      {Type: HashIPPort, Family: Inet},
		"hash:ip,port,net inet6": {Type: HashIPPortNet, Family: Inet6},
		"bitmap:port":            {Type: BitmapPort},
	} {
		if s.String() != want || !s.Type.Known() {
			t.Errorf("%+v: %s, %t", s, s, s.Type.Known())
		}
	}
	if SetType("hash:net").Known() {
		t.Error("a type that cannot be read is known")
	}
}

// part returns a part of a list as the library reads it: a name, a header if it is the first of the
// set, and entries.
func part(name string, kind SetType, entries ...Entry) *library.IPSetResult {
	r := &library.IPSetResult{SetName: name}
	if kind != "" {
		r.TypeName, r.Family, r.MaxElements, r.NumEntries = string(kind), uint8(Inet), 100, 3
	}
	for _, e := range entries {
		r.Entries = append(r.Entries, listed(e))
	}
	return r
}

// TestTogether_LargeSet: a large set is put together from several parts.
func TestTogether_LargeSet(t *testing.T) {
	one, two, three := Entry{Addr: addr("10.0.0.1")}, Entry{Addr: addr("10.0.0.2")}, Entry{Addr: addr("10.0.0.3")}
	var sets []Set
	for _, p := range []*library.IPSetResult{
		part("A", HashIP, one, two), part("A", "", three),
		part("B", HashIP, two), part("nets", "hash:net", one), part("mixed", HashIP, Entry{Port: 80}, one),
	} {
		sets = together(sets, p)
	}
	var names []string
	var entries [][]Entry
	for _, s := range sets {
		names, entries = append(names, s.Name), append(entries, s.Entries)
		if s.MaxElem != 100 || s.Count != 3 || s.Family != Inet {
			t.Errorf("header %+v", s)
		}
	}
	if !slices.Equal(names, []string{"A", "B", "nets", "mixed"}) {
		t.Fatalf("sets %v", names)
	}
	for i, want := range [][]Entry{{one, two, three}, {two}, nil, {one}} {
		if !slices.Equal(entries[i], want) {
			t.Errorf("%s: %v, want %v", names[i], entries[i], want)
		}
	}
}
