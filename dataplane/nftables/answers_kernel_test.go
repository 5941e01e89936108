package nftables_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/nftables"
	"github.com/sluice-proxy/sluice/dataplane/nftables/wire"
	"github.com/sluice-proxy/sluice/internal/netlink"
	"github.com/sluice-proxy/sluice/service"
)

// resize sets a buffer of a socket (SO_RCVBUF or SO_SNDBUF) as a process without
// privileges might find it.
func resize(socket *wire.Socket, buffer, bytes int) error {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return err
	}
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err != nil {
			return err
		}
		if protocol, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PROTOCOL); err != nil || protocol != unix.NETLINK_NETFILTER {
			continue // another kind of socket, or none
		}
		name, err := unix.Getsockname(fd)
		if err != nil {
			return err
		}
		if at, ok := name.(*unix.SockaddrNetlink); ok && at.Pid == socket.Port() {
			if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, buffer, bytes); err != nil {
				return err
			}
		}
	}
	return nil
}

// openNarrow opens sockets whose receive buffer is the smallest there is. When the
// kernel refuses a transaction for many reasons, most of its answers find no room
// there, which it tells by ENOBUFS.
func openNarrow() (nftables.Socket, error) {
	socket, err := wire.Open()
	if err == nil {
		err = resize(socket, unix.SO_RCVBUF, 0)
	}
	return socket, err
}

// small is a socket with a small send buffer.
type small struct{ *wire.Socket }

const smallBytes = 100 << 10

func openSmall() (nftables.Socket, error) {
	socket, err := wire.Open()
	if err == nil {
		err = resize(socket, unix.SO_SNDBUF, smallBytes/2) // the kernel doubles it
	}
	return small{socket}, err
}

// Room is for nftables.Socket.
func (small) Room() int { return smallBytes }

// TestAnswersThatDoNotFit: of the answers to a refused transaction the kernel
// drops most, for want of room. That it is refused is known all the same, and the
// answers to it are not taken for those to the next question. (Seen as a table
// taken for absent, whose rules were then written a second time.)
func TestAnswersThatDoNotFit(t *testing.T) {
	w := newWorld(t, service.IPv4, nftables.WriterConfig{})
	w.restart(nftables.WriterConfig{Open: openNarrow})
	for n := range 20 {
		w.serve(plain(n, 3, 0))
	}
	w.commit()
	for n := range 20 {
		view := plain(n, 3, 0)
		w.want(view.Key, append(w.renderer.Service(view, &w.facts), unheardOf(n)))
	}
	batch := w.ledger.Plan()
	receipt := w.writer.Write(t.Context(), batch)
	if receipt.Outcome != dataplane.Rejected || !errors.Is(receipt.Err, unix.ENOENT) {
		t.Errorf("got %v, want a rejection with the kernel's reason", receipt)
	}
	w.ledger.Settle(batch, receipt)
	for n := range 20 {
		w.serve(plain(n, 3, 0))
	}
	if drift := w.audit(); drift.Any() {
		t.Errorf("after the rejection: %+v", drift)
	}
	w.commit()
	if drift := w.audit(); drift.Any() {
		t.Errorf("after an audit and a write: %+v", drift)
	}
}

// unheardOf is a chain whose rule has an expression that no kernel knows.
func unheardOf(n int) dataplane.Object {
	const bodyRule = 2
	body, rule := netlink.Nest(nil, bodyRule)
	body, list := netlink.Nest(body, unix.NFTA_RULE_EXPRESSIONS)
	body, element := netlink.Nest(body, unix.NFTA_LIST_ELEM)
	body = netlink.AppendText(body, unix.NFTA_EXPR_NAME, "telepathy")
	body = netlink.End(netlink.End(netlink.End(body, element), list), rule)
	return dataplane.Object{
		ID:   dataplane.ID{Container: "chain", Name: fmt.Sprint("endpoint-unheard-of-", n)},
		Kind: dataplane.Owned, Body: string(body),
	}
}

// TestAServiceThatDoesNotFit: a Service with more elements than fit into one
// transaction is refused by name. (In a user namespace that is some thousand
// endpoints; the write was tried again for ever, and what came after the Service
// in the batch never landed.)
func TestAServiceThatDoesNotFit(t *testing.T) {
	w := newWorld(t, service.IPv4, nftables.WriterConfig{})
	w.restart(nftables.WriterConfig{Open: openSmall})
	w.commit()
	const large = 7
	for n := range 20 {
		endpoints := 3
		if n == large {
			endpoints = 5000
		}
		w.serve(plain(n, endpoints, 0))
	}
	batch := w.ledger.Plan()
	receipt := w.writer.Write(t.Context(), batch)
	if receipt.Outcome != dataplane.Rejected || !errors.Is(receipt.Err, unix.EMSGSIZE) {
		t.Fatalf("got %v, want a rejection for the size", receipt)
	}
	if want := []service.Key{plain(large, 1, 0).Key}; !slices.Equal(receipt.Suspects, want) {
		t.Errorf("suspects %v, want %v", receipt.Suspects, want)
	}
	w.ledger.Settle(batch, receipt)
	w.serve(plain(large, 3, 0))
	w.commit()
	if drift := w.audit(); drift.Any() {
		t.Errorf("with the Service made smaller: %+v", drift)
	}
}
