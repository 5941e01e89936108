package ipset

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// bytesOf reads hexadecimal text with a part per attribute. Words in the host's
// byte order are written for a little-endian machine.
func bytesOf(t *testing.T, text string) []byte {
	t.Helper()
	if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
		t.Fatal("this test is written for a little-endian machine")
	}
	var lines []string
	for line := range strings.Lines(text) {
		code, _, _ := strings.Cut(line, "#")
		lines = append(lines, strings.Join(strings.Fields(code), ""))
	}
	b, err := hex.DecodeString(strings.Join(lines, ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestGoldenBytes holds messages against what the kernel's headers say.
func TestGoldenBytes(t *testing.T) {
	second, err := ParseEntry(HashIPPortNet, "fd00::1,sctp:80,fd00::/64")
	if err != nil {
		t.Fatal(err)
	}
	list, mark := listMessage(cmdAdd, 7, "P")
	list = appendLine(list, 1, Entry{Port: 30080})
	list = sealList(appendLine(list, 2, Entry{Port: 80}), mark)
	for name, c := range map[string]struct {
		got  []byte
		want string
	}{
		"create a hash": {createMessage(7, 0, Spec{Name: "A", Type: HashIPPort, Family: Inet, HashSize: 1024, MaxElem: 1 << 20}, 1), `
			5c000000 0206 0504 00000000 00000000 # length, create, request+ack+create
			02 00 0000
			0500 0100 07000000                   # protocol
			0600 0200 41000000                   # name
			1100 0300 686173683a69702c706f727400 000000
			0500 0400 01000000                   # revision
			0500 0500 02000000                   # family
			1400 0780                            # data, nested
			0800 1240 00000400                   # hash size
			0800 1340 00100000                   # maximal number of entries`},
		"create a bitmap": {createMessage(6, unix.NLM_F_EXCL, Spec{Name: "P", Type: BitmapPort, MaxElem: 7}, 0), `
			58000000 0206 0506 00000000 00000000
			02 00 0000
			0500 0100 06000000
			0600 0200 50000000
			1000 0300 6269746d61703a706f727400
			0500 0400 00000000
			0500 0500 00000000
			1400 0780
			0600 0440 00000000
			0600 0540 ffff0000`},
		"destroy": {nameMessage(cmdDestroy, unix.NLM_F_ACK, 7, "A"), `
			24000000 0306 0500 00000000 00000000
			02 00 0000
			0500 0100 07000000
			0600 0200 41000000`},
		"swap": {nameMessage(cmdSwap, unix.NLM_F_ACK, 7, "A", "B"), `
			2c000000 0606 0500 00000000 00000000
			02 00 0000
			0500 0100 07000000
			0600 0200 41000000
			0600 0300 42000000`},
		"add one": {entryMessage(cmdAdd, 7, "N", second), `
			70000000 0906 0500 00000000 00000000
			02 00 0000
			0500 0100 07000000
			0600 0200 4e000000
			4c00 0780
			1800 0180 1400 0240 fd000000000000000000000000000001
			0600 0440 00500000
			0500 0700 84000000
			1800 1480 1400 0240 fd000000000000000000000000000000
			0500 1500 40000000`},
		"add several": {list, `
			58000000 0906 0500 00000000 00000000
			02 00 0000
			0500 0100 07000000
			0600 0200 50000000
			0800 0940 00000000                   # line of the message
			2c00 0880                            # list
			1400 0780 0800 0940 00000001 0600 0440 75800000
			1400 0780 0800 0940 00000002 0600 0440 00500000`},
	} {
		if want := bytesOf(t, c.want); !slices.Equal(c.got, want) {
			t.Errorf("%s:\n got %x\nwant %x", name, c.got, want)
		}
	}
}

// refusal is the kernel's answer to a message, with the line of an entry if it
// tells one.
func refusal(request []byte, errno syscall.Errno, line int) syscall.NetlinkMessage {
	data := binary.NativeEndian.AppendUint32(nil, uint32(-int32(errno)))
	data = append(data, request...)
	m := syscall.NetlinkMessage{Header: syscall.NlMsghdr{Type: unix.NLMSG_ERROR}, Data: data}
	if line == 0 {
		m.Header.Flags, m.Data = unix.NLM_F_CAPPED, data[:4+unix.SizeofNlMsghdr]
		return m
	}
	// The line of the message comes behind the protocol and a name of one letter.
	at := 4 + unix.SizeofNlMsghdr + genericBytes + 8 + 8 + 4
	binary.BigEndian.PutUint32(m.Data[at:], uint32(line))
	return m
}

func TestAnswers(t *testing.T) {
	b, mark := listMessage(cmdAdd, 7, "P")
	b = sealList(appendLine(appendLine(b, 1, Entry{Port: 1}), 2, Entry{Port: 2}), mark)
	for _, want := range []answer{{}, {errno: unix.ENOENT}, {errno: errnoHashFull, line: 2}} {
		if got, ok := readAnswer(refusal(b, want.errno, int(want.line))); !ok || got != want {
			t.Errorf("got %+v, %t; want %+v", got, ok, want)
		}
	}
	if _, ok := readAnswer(syscall.NetlinkMessage{Data: []byte{1, 2, 3}}); ok {
		t.Error("three bytes were taken for an answer")
	}
}

// TestLists: every change is in exactly one message of its set, in the order of
// the caller, and no message is too long.
func TestLists(t *testing.T) {
	s := &Socket{protocol: 7}
	var changes []Change
	for i := range 3000 {
		set := []string{"B", "A", "C"}[i%3]
		changes = append(changes, Change{set, Entry{Addr: addr("10.0.0.1"), Protocol: TCP, Port: uint16(i)}})
	}
	seen := make([]bool, len(changes))
	lists := s.lists(cmdAdd, changes)
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
	if got := s.lists(cmdAdd, nil); len(got) != 0 {
		t.Errorf("no changes make %d messages", len(got))
	}
}

func TestSettle(t *testing.T) {
	changes := []Change{{"P", Entry{Port: 1}}, {"P", Entry{Port: 2}}, {"P", Entry{Port: 3}}}
	l := list{about: []int{0, 1, 2}}
	for name, c := range map[string]struct {
		answer answer
		want   string // a letter per change: done, refused, failed
		again  []int
	}{
		"yes":                    {answer{}, "ddd", nil},
		"the second is refused":  {answer{errno: errnoHashFull, line: 2}, "drd", []int{2}},
		"the last is refused":    {answer{errno: errnoHashFull, line: 3}, "ddr", nil},
		"no such set":            {answer{errno: unix.ENOENT}, "rrr", nil},
		"no without a line":      {answer{errno: errnoProtocol}, "ddd", []int{0, 1, 2}},
		"a line that is no line": {answer{errno: errnoHashFull, line: 9}, "ddd", []int{0, 1, 2}},
		"the answer was lost":    {answer{err: ErrUnanswered}, "ddd", []int{0, 1, 2}},
		"not sent":               {answer{err: unix.EMSGSIZE}, "fff", nil},
		"not tried":              {answer{err: context.Canceled}, "fff", nil},
	} {
		results := make([]error, 3)
		again := l.settle(cmdAdd, changes, c.answer, results)
		got := ""
		for _, err := range results {
			var no *RefusedError
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

func TestErrorsSpeak(t *testing.T) {
	add := "add 80 to P"
	for want, c := range map[string]struct {
		answer answer
		is     error
	}{
		"ipset: add 80 to P: the set is full":                                  {answer{errno: errnoHashFull}, ErrFull},
		"ipset: add 80 to P: no such set":                                      {answer{errno: unix.ENOENT}, ErrNoSet},
		"ipset: add 80 to P: a different set of that name exists":              {answer{errno: unix.EEXIST}, ErrDifferent},
		"ipset: add 80 to P: the set is in use":                                {answer{errno: errnoReferenced}, ErrInUse},
		"ipset: add 80 to P: cannot allocate memory":                           {answer{errno: unix.ENOMEM}, unix.ENOMEM},
		"ipset: add 80 to P: the kernel's answer was lost":                     {answer{err: ErrUnanswered}, ErrUnanswered},
		"ipset: add 80 to P: not tried: context canceled":                      {answer{err: context.Canceled}, context.Canceled},
		"ipset: add 80 to P: hand over to the kernel: operation not permitted": {answer{err: fmt.Errorf("hand over to the kernel: %w", unix.EPERM)}, unix.EPERM},
	} {
		err := outcome(add, c.answer)
		if err == nil || err.Error() != want || !errors.Is(err, c.is) || Unknown(err) != (c.is == ErrUnanswered) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
