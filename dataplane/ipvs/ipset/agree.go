package ipset

import (
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane/nftables/wire"
)

// agree finds the newest version of the protocol that both sides speak. The
// question is put in the oldest one, as kernels before 4.20 know no other.
func (s *Socket) agree() error {
	var newest, oldest uint8
	err := s.ask(nameMessage(cmdProtocol, unix.NLM_F_ACK, protocolOldest), func(attrs []byte) {
		newest = byteOf(wire.Find(attrs, attrProtocol))
		oldest = byteOf(wire.Find(attrs, attrProtocolMin))
	})
	switch {
	// What nfnetlink says for a subsystem that is neither there nor to be loaded.
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EPROTONOSUPPORT):
		return fmt.Errorf("ipset: sets are %w (%w); is the module ip_set there?", ErrUnsupported, err)
	case err != nil:
		return fmt.Errorf("ipset: agree on a protocol: %w", err)
	case newest < protocolOldest || oldest > protocolNewest:
		return fmt.Errorf("ipset: the kernel speaks versions %d to %d of the protocol: neither %d nor %d is %w",
			oldest, newest, protocolOldest, protocolNewest, ErrUnsupported)
	}
	s.protocol = min(newest, protocolNewest)
	return nil
}

// revision finds the revision in which to make sets of a type: the one that we
// need, or the oldest of the kernel's if that is newer. The kernel may load a
// module for the question.
func (s *Socket) revision(t Type, f Family) (uint8, error) {
	key := kindKey{t, f}
	if known, ok := s.revisions[key]; ok {
		return known, nil
	}
	b := message(cmdType, unix.NLM_F_ACK, s.protocol)
	b = wire.AppendText(b, attrTypeName, string(t))
	b = appendByte(b, attrFamily, uint8(f))
	var newest, oldest uint8
	err := s.ask(seal(b), func(attrs []byte) {
		newest = byteOf(wire.Find(attrs, attrRevision))
		oldest = byteOf(wire.Find(attrs, attrRevisionMin))
	})
	what := "find type " + Spec{Type: t, Family: f}.String()
	var errno syscall.Errno
	switch {
	case errors.As(err, &errno):
		return 0, refused(what, errno)
	case err != nil:
		return 0, fmt.Errorf("ipset: %s: %w", what, err)
	case newest < t.revision():
		return 0, fmt.Errorf("ipset: %s: revision %d is %w, which has up to %d", what, t.revision(), ErrUnsupported, newest)
	}
	s.revisions[key] = max(oldest, t.revision())
	return s.revisions[key], nil
}
