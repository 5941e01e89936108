// SPDX-License-Identifier: Apache-2.0

package netlink

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/test/netnstest"
	"github.com/sluice-proxy/sluice/test/testenv"
)

const family = unix.NFPROTO_IPV4

// inNamespace returns a namespace and a socket to netfilter in it.
func inNamespace(t *testing.T, config Config) (*netns.Namespace, *Socket) {
	t.Helper()
	node := netnstest.New(t, "node")
	return node, open(t, node, config)
}

func open(t *testing.T, node *netns.Namespace, config Config) *Socket {
	t.Helper()
	config.Protocol = unix.NETLINK_NETFILTER
	var s *Socket
	if err := node.Do(func() (err error) { s, err = Open(config); return err }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// batch frames messages as a transaction. The last one asks for an answer.
func batch(messages ...[]byte) []byte {
	frame := func(b []byte, kind uint16) []byte {
		b, mark := Begin(b, kind, 0)
		return Finish(append(b, unix.AF_UNSPEC, unix.NFNETLINK_V0, 0, unix.NFNL_SUBSYS_NFTABLES), mark)
	}
	b := frame(nil, unix.NFNL_MSG_BATCH_BEGIN)
	for _, m := range messages {
		b = append(b, m...)
	}
	AddFlags(b[len(b)-len(messages[len(messages)-1]):], unix.NLM_F_ACK)
	return frame(b, unix.NFNL_MSG_BATCH_END)
}

func message(kind, flags uint16, table string) []byte {
	b, mark := BeginNetfilter(nil, unix.NFNL_SUBSYS_NFTABLES, kind, flags, family)
	return Finish(AppendText(b, unix.NFTA_TABLE_NAME, table), mark)
}

func newTable(name string) []byte { return message(unix.NFT_MSG_NEWTABLE, unix.NLM_F_CREATE, name) }
func delTable(name string) []byte { return message(unix.NFT_MSG_DELTABLE, 0, name) }

// answers exchanges a buffer and returns the rejections by place.
func answers(s *Socket, b []byte) (map[int]Rejection, error) {
	rejections := map[int]Rejection{}
	err := s.Exchange(b, func(at int, a Answer) {
		if a.Errno != 0 {
			rejections[at] = a.Rejection
		}
	})
	return rejections, err
}

// tables lists the names of tables.
func tables(ctx context.Context, s *Socket) ([]string, error) {
	request, mark := BeginNetfilter(nil, unix.NFNL_SUBSYS_NFTABLES, unix.NFT_MSG_GETTABLE, unix.NLM_F_DUMP, family)
	var names []string
	err := s.Ask(ctx, Finish(request, mark), func(m Message) error {
		if t, ok := m.Netfilter(unix.NFNL_SUBSYS_NFTABLES); ok {
			names = append(names, Find(t.Attrs, unix.NFTA_TABLE_NAME).Text())
		}
		return nil
	})
	return names, err
}

// TestKernelSocket_Exchange: one answer confirms a batch, and a rejection contains the position of its message and the
// offset of the attribute.
func TestKernelSocket_Exchange(t *testing.T) {
	_, s := inNamespace(t, Config{})
	rejections, err := answers(s, batch(newTable("one"), newTable("two")))
	if err != nil || len(rejections) > 0 {
		t.Fatalf("rejected %v, error %v", rejections, err)
	}
	if names, err := tables(t.Context(), s); err != nil || len(names) != 2 {
		t.Errorf("tables %v, error %v", names, err)
	}
	rejections, err = answers(s, batch(delTable("one"), delTable("absent"), newTable("three"), delTable("missing")))
	if err != nil || len(rejections) != 2 {
		t.Fatalf("rejected %v, error %v", rejections, err)
	}
	for _, at := range []int{2, 4} { // the beginning of the batch is 0
		if r := rejections[at]; r.Errno != unix.ENOENT || r.Offset != HeaderBytes+netfilterBytes {
			t.Errorf("message %d: %+v", at, r)
		}
	}
	if names, err := tables(t.Context(), s); err != nil || len(names) != 2 {
		t.Errorf("tables after a rejected batch: %v, error %v", names, err)
	}
}

// TestKernelSocket_AnswersDoNotFit: lost answers are reported, and late ones are not taken for answers to the next
// request.
func TestKernelSocket_AnswersDoNotFit(t *testing.T) {
	_, s := inNamespace(t, Config{})
	if err := unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 0); err != nil {
		t.Fatal(err)
	}
	if n, err := s.Answers(); err != nil || n != 1 {
		t.Errorf("%d answers fit, error %v", n, err)
	}
	var many [][]byte
	for i := range 100 {
		many = append(many, delTable(fmt.Sprint("absent-", i)))
	}
	rejections, err := answers(s, batch(many...))
	if !errors.Is(err, ErrUnanswered) || len(rejections) == 0 || len(rejections) == len(many) {
		t.Errorf("%d rejections, error %v", len(rejections), err)
	}
	if rejections, err := answers(s, batch(newTable("one"))); err != nil || len(rejections) > 0 {
		t.Errorf("the next batch: rejected %v, error %v", rejections, err)
	}
}

// TestKernelSocket_RequestTooLarge: a request that is too large returns a NotSentError.
func TestKernelSocket_RequestTooLarge(t *testing.T) {
	_, s := inNamespace(t, Config{SendBytes: 64 << 10})
	if s.Room() > 200<<10 {
		t.Fatalf("room for %d bytes", s.Room())
	}
	_, err := answers(s, make([]byte, s.Room()+1))
	if _, ok := errors.AsType[*NotSentError](err); !ok || !errors.Is(err, unix.EMSGSIZE) {
		t.Errorf("error %v, want EMSGSIZE", err)
	}
}

// TestKernelSocket_AbandonedDump: the rest of an abandoned dump does not affect the next request.
func TestKernelSocket_AbandonedDump(t *testing.T) {
	_, s := inNamespace(t, Config{})
	var many [][]byte
	for i := range 1000 {
		many = append(many, newTable(fmt.Sprintf("table-with-a-long-name-so-that-the-dump-is-long-%04d", i)))
	}
	if rejections, err := answers(s, batch(many...)); err != nil || len(rejections) > 0 {
		t.Fatalf("rejected %v, error %v", rejections, err)
	}
	enough := errors.New("enough")
	request, mark := BeginNetfilter(nil, unix.NFNL_SUBSYS_NFTABLES, unix.NFT_MSG_GETTABLE, unix.NLM_F_DUMP, family)
	if err := s.Ask(t.Context(), Finish(request, mark), func(Message) error { return enough }); !errors.Is(err, enough) {
		t.Errorf("error %v", err)
	}
	if names, err := tables(t.Context(), s); err != nil || len(names) != len(many) {
		t.Errorf("%d tables, error %v", len(names), err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	request, mark = BeginNetfilter(nil, unix.NFNL_SUBSYS_NFTABLES, unix.NFT_MSG_GETTABLE, unix.NLM_F_DUMP, family)
	err := s.Ask(ctx, Finish(request, mark), func(Message) error { cancel(enough); return nil })
	if !errors.Is(err, enough) {
		t.Errorf("error %v after the context's end", err)
	}
	if _, err := tables(ctx, s); !errors.Is(err, enough) {
		t.Errorf("error %v with an ended context", err)
	}
	if names, err := tables(t.Context(), s); err != nil || len(names) != len(many) {
		t.Errorf("%d tables, error %v", len(names), err)
	}
}

// TestKernelSocket_InterruptedDump: a dump during which the tables change returns ErrInterrupted.
func TestKernelSocket_InterruptedDump(t *testing.T) {
	node, s := inNamespace(t, Config{})
	other := open(t, node, Config{})
	var many [][]byte
	for i := range 1000 {
		many = append(many, newTable(fmt.Sprintf("table-with-a-long-name-so-that-the-dump-is-long-%04d", i)))
	}
	if rejections, err := answers(s, batch(many...)); err != nil || len(rejections) > 0 {
		t.Fatalf("rejected %v, error %v", rejections, err)
	}
	request, mark := BeginNetfilter(nil, unix.NFNL_SUBSYS_NFTABLES, unix.NFT_MSG_GETTABLE, unix.NLM_F_DUMP, family)
	seen := 0
	err := s.Ask(t.Context(), Finish(request, mark), func(Message) error {
		if seen++; seen == 1 {
			_, err := answers(other, batch(newTable("meanwhile")))
			return err
		}
		return nil
	})
	if !errors.Is(err, ErrInterrupted) {
		t.Errorf("%d tables, error %v, want ErrInterrupted", seen, err)
	}
}

// TestKernelSocket_RejectedQuery: a rejected query returns a Rejection with the kernel's error.
func TestKernelSocket_RejectedQuery(t *testing.T) {
	_, s := inNamespace(t, Config{})
	request, mark := BeginNetfilter(nil, unix.NFNL_SUBSYS_NFTABLES, unix.NFT_MSG_GETTABLE, unix.NLM_F_ACK, family)
	request = Finish(AppendText(request, unix.NFTA_TABLE_NAME, "absent"), mark)
	err := s.Ask(t.Context(), request, func(Message) error { return nil })
	if r, ok := errors.AsType[*Rejection](err); !ok || r.Errno != unix.ENOENT || r.Offset == 0 {
		t.Errorf("error %v", err)
	}
	if err := s.Ask(t.Context(), []byte{0}, nil); !errors.Is(err, ErrUnanswered) {
		t.Errorf("nothing was asked: error %v", err)
	}
}

// TestKernelTableListener_ExcludesOwnChanges: the listener receives changes of other sockets, but not of the socket
// whose port it excludes.
func TestKernelTableListener_ExcludesOwnChanges(t *testing.T) {
	node, s := inNamespace(t, Config{})
	other := open(t, node, Config{})
	var all, others *TableListener
	if err := node.Do(func() (err error) {
		if all, err = ListenAllTables(); err == nil {
			others, err = ListenTables(family, s.Port())
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	for name, socket := range map[string]*Socket{"own": s, "other": other} {
		if rejections, err := answers(socket, batch(newTable(name))); err != nil || len(rejections) > 0 {
			t.Fatalf("rejected %v, error %v", rejections, err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
	var names []string
	err := others.Run(ctx, func(n Netfilter) {
		if _, command, ends := Generation(n); ends {
			if command == "" {
				t.Error("a generation without a command")
			}
			cancel()
			return
		}
		names = append(names, Find(n.Attrs, unix.NFTA_TABLE_NAME).Text())
	}, func() { t.Error("announcements were lost") })
	if !errors.Is(err, context.Canceled) || len(names) != 1 || names[0] != "other" {
		t.Errorf("announced %v, error %v", names, err)
	}
	count := 0
	if err := all.Pending(func(Netfilter) { count++ }, func() { t.Error("announcements were lost") }); err != nil || count != 4 {
		t.Errorf("%d announcements of two transactions, error %v", count, err)
	}
	if rejections, err := answers(other, batch(newTable("later"))); err != nil || len(rejections) > 0 {
		t.Fatalf("rejected %v, error %v", rejections, err)
	}
	count = 0 // after the end of Run, the listener can still be read
	if err := others.Pending(func(Netfilter) { count++ }, func() { t.Error("announcements were lost") }); err != nil || count != 2 {
		t.Errorf("%d announcements of a later transaction, error %v", count, err)
	}
	if err := errors.Join(all.Close(), others.Close()); err != nil {
		t.Error(err)
	}
}

// TestKernelSocket_UseAfterClose: a closed socket returns EBADF, and does not use a descriptor that another file may
// have now.
func TestKernelSocket_UseAfterClose(t *testing.T) {
	node, _ := inNamespace(t, Config{})
	var s *Socket
	if err := node.Do(func() (err error) { s, err = Open(Config{Protocol: unix.NETLINK_NETFILTER}); return err }); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := answers(s, batch(newTable("one"))); !errors.Is(err, unix.EBADF) {
		t.Errorf("error %v, want EBADF", err)
	}
	if err := s.Close(); !errors.Is(err, unix.EBADF) {
		t.Errorf("error %v, want EBADF", err)
	}
}
