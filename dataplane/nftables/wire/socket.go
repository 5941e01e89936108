package wire

import (
	"context"
	"errors"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/internal/netlink"
)

// Socket is a connection to nf_tables; see [netlink.Socket].
type Socket struct{ *netlink.Socket }

// What the socket's buffers should hold.
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

type (
	// Message is a message of nf_tables. Its Kind is NFT_MSG_….
	Message = netlink.Netfilter
	// NotTakenError means that the kernel did not take a transaction, so that nothing
	// has changed.
	NotTakenError = netlink.NotSentError
)

// ErrInterrupted means that the tables were changed during a dump.
var ErrInterrupted = netlink.ErrInterrupted

// Commit sends a transaction, which the kernel carries out before the call returns. It
// cannot be interrupted. Refusals mean that nothing has changed; if there are very many,
// some may be missing. A NotTakenError means that nothing has changed either. After any
// other error the outcome is unknown.
func (s *Socket) Commit(t *Transaction) ([]*Refusal, error) {
	if t.Messages() == 0 {
		return nil, nil
	}
	t.seal()
	var refusals []*Refusal
	err := s.Exchange(t.buf, func(at int, a netlink.Answer) {
		if a.Errno != 0 {
			refusals = append(refusals, t.refusal(at, a))
		}
	})
	if len(refusals) > 0 && errors.Is(err, netlink.ErrUnanswered) {
		err = nil // one refusal is enough to know that nothing has changed
	}
	return refusals, err
}

// Ask sends a request of a kind (NFT_MSG_GET…) with attributes and calls each with the
// messages of the reply, which are valid during the call. With all, it asks for
// everything that matches, otherwise for one object. The error matches unix.ENOENT if
// that does not exist, and ErrInterrupted if the tables were changed meanwhile.
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
