// SPDX-License-Identifier: Apache-2.0

// Package wire sends transactions and requests to nf_tables over internal/netlink. It
// frames transactions, maps their messages to the caller's changes, and reads the
// kernel's rejections. Its callers encode the bodies of the messages.
//
// A rejection names the exact attribute that was rejected, a transaction is one buffer
// without an answer per message, and this package sets the sizes of the socket's buffers
// (docs/adr/0020-one-netlink-transport.md).
package wire

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/internal/netlink"
)

// Socket is a connection to nf_tables; see [netlink.Socket].
type Socket struct{ *netlink.Socket }

// The requested sizes of the socket's buffers.
const (
	sendBytes    = 64 << 20
	receiveBytes = 16 << 20
)

// Open opens a socket in the network namespace of the calling thread.
func Open() (*Socket, error) {
	s, err := netlink.Open(netlink.Config{
		Protocol: unix.NETLINK_NETFILTER, SendBytes: sendBytes, ReceiveBytes: receiveBytes,
	})
	if err != nil {
		return nil, err
	}
	return &Socket{s}, nil
}

// Listen listens to all changes of all tables. Call it on a thread in the socket's
// network namespace.
func (s *Socket) Listen() (*netlink.TableListener, error) { return netlink.ListenAllTables() }

// Message is a message of nf_tables. Its Kind is NFT_MSG_….
type Message = netlink.Netfilter

// Commit sends a transaction, which the kernel carries out before the call returns. It
// cannot be interrupted. Rejections mean that nothing has changed; if there are very many,
// some may be missing. A netlink.NotSentError means that nothing has changed either. After any
// other error the outcome is unknown.
func (s *Socket) Commit(t *Transaction) ([]*Rejection, error) {
	if t.Messages() == 0 {
		return nil, nil
	}
	t.seal()
	var rejections []*Rejection
	err := s.ExchangeEcho(t.buf, func(at int, a netlink.Answer) {
		if a.Errno != 0 {
			rejections = append(rejections, t.rejection(at, a))
		}
	}, func(m netlink.Message) {
		if echo, ok := m.Netfilter(unix.NFNL_SUBSYS_NFTABLES); ok {
			t.Echo(echo)
		}
	})
	if len(rejections) > 0 && errors.Is(err, netlink.ErrUnanswered) {
		err = nil // one rejection is enough to know that nothing has changed
	}
	return rejections, err
}

// Ask sends a request of a kind (NFT_MSG_GET…) with attributes and calls each with the
// messages of the reply, which are valid during the call. With all, it requests all
// matching objects, otherwise one object. The error matches unix.ENOENT if that object
// does not exist, and netlink.ErrInterrupted if the tables were changed during the dump.
func (s *Socket) Ask(ctx context.Context, kind uint16, family uint8, all bool, attrs []byte, each func(Message)) error {
	flags := uint16(unix.NLM_F_ACK)
	if all {
		flags = unix.NLM_F_DUMP
	}
	request, mark := netlink.BeginNetfilter(nil, unix.NFNL_SUBSYS_NFTABLES, kind, flags, family)
	request = netlink.Finish(append(request, attrs...), mark)
	return s.Socket.Ask(ctx, request, func(m netlink.Message) error {
		if t, ok := m.Netfilter(unix.NFNL_SUBSYS_NFTABLES); ok {
			each(t)
		}
		return nil
	})
}

// Rejection is the kernel's answer to a message of a transaction that it did not carry
// out.
type Rejection struct {
	Errno syscall.Errno
	// Kind is the type of the rejected message, NFT_MSG_…; 0 for the transaction as a
	// whole.
	Kind uint16
	// Words are the kernel's explanation, if it gave one.
	Words string
	// About has the caller's numbers for the rejected part; see Transaction.Note.
	About []int
}

// Error returns the kernel's reason.
func (r *Rejection) Error() string {
	reason := netlink.Rejection{Errno: r.Errno, Text: r.Words}
	return fmt.Sprintf("%s: %v", kindName(r.Kind), &reason)
}

// Unwrap returns the error number.
func (r *Rejection) Unwrap() error { return r.Errno }

func kindName(kind uint16) string {
	names := map[uint16]string{
		unix.NFT_MSG_NEWTABLE: "add table", unix.NFT_MSG_DELTABLE: "delete table",
		unix.NFT_MSG_NEWCHAIN: "add chain", unix.NFT_MSG_DELCHAIN: "delete chain",
		unix.NFT_MSG_NEWRULE: "add rule", unix.NFT_MSG_DELRULE: "delete rules",
		unix.NFT_MSG_NEWSET: "add set", unix.NFT_MSG_DELSET: "delete set",
		unix.NFT_MSG_NEWSETELEM: "add element", unix.NFT_MSG_DELSETELEM: "delete element",
		unix.NFT_MSG_NEWFLOWTABLE: "add to flowtable", unix.NFT_MSG_DELFLOWTABLE: "delete from flowtable",
	}
	if name, ok := names[kind]; ok {
		return name
	}
	return "transaction"
}
