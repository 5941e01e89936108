package nft

import (
	"context"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane/nftables"
	"github.com/sluice-proxy/sluice/dataplane/nftables/wire"
)

// socket implements [nftables.Socket].
type socket struct {
	kernel *Kernel
	port   uint32
	closed bool
}

var _ nftables.Socket = (*socket)(nil)

// roomBytes is what a socket of a privileged process has on the real kernel.
const roomBytes = 128 << 20

// Commit carries a transaction out, or gives every message that is refused.
func (s *socket) Commit(t *wire.Transaction) ([]*wire.Refusal, error) {
	switch {
	case s.closed:
		return nil, &wire.NotTakenError{Err: unix.EBADF}
	case t.Messages() == 0:
		return nil, nil
	case t.Bytes() > roomBytes:
		return nil, &wire.NotTakenError{Err: unix.EMSGSIZE}
	}
	return s.kernel.commit(t), nil
}

// Ask gives the messages of the answer to a question.
func (s *socket) Ask(ctx context.Context, kind uint16, family uint8, all bool, attrs []byte, each func(wire.Message)) error {
	if s.closed {
		return unix.EBADF
	}
	messages, err := s.kernel.answer(kind, family, all, attrs)
	for _, m := range messages {
		if ctx.Err() == nil {
			m.Port = s.port
			each(m)
		}
	}
	return err
}

// Port identifies the socket among those of the kernel.
func (s *socket) Port() uint32 { return s.port }

// Room is the size in bytes of the largest transaction that is taken.
func (s *socket) Room() int { return roomBytes }

// Close gives the socket up; later calls fail.
func (s *socket) Close() error {
	s.closed = true
	return nil
}
