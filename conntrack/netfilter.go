package conntrack

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/internal/host/hostaddress"
	"github.com/sluice-proxy/sluice/service"
)

// netfilter is the kernel's table of one family, by netlink. It serves one sweep.
type netfilter struct {
	family service.Family
	// inside runs a function in the network namespace to work in.
	inside func(func() error) error
	// filterless makes requests as if there were no filters.
	filterless bool
	// deleting has a socket of its own, since a listing goes on meanwhile; nil
	// until something is deleted.
	deleting *socket
}

var _ kernel = (*netfilter)(nil)

// open opens a socket in the namespace.
func (n *netfilter) open() (opened *socket, err error) {
	err = n.inside(func() error {
		opened, err = openSocket()
		return err
	})
	return opened, err
}

func (n *netfilter) close() error {
	if n.deleting == nil {
		return nil
	}
	err := n.deleting.close()
	n.deleting = nil
	return err
}

func (n *netfilter) addresses() (all []netip.Addr, err error) {
	err = n.inside(func() error {
		all, err = hostaddress.List()
		return err
	})
	return all, err
}

func (n *netfilter) flows(ctx context.Context, only filter, each func(*flow) error) (bool, error) {
	if !n.filterless {
		honoured, err := n.list(ctx, only, true, each)
		if !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.EOPNOTSUPP) {
			return honoured, err
		}
	}
	return n.list(ctx, only, false, each)
}

// list asks for flows on a socket of its own, which takes what is left of an
// unfinished answer with it.
func (n *netfilter) list(ctx context.Context, only filter, filtered bool, each func(*flow) error) (honoured bool, err error) {
	listing, err := n.open()
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, listing.close()) }()
	listing.sequence++
	request, mark := openMessage(nil, messageGet, unix.NLM_F_DUMP, listing.sequence, n.family)
	if filtered {
		request = appendFilter(request, n.family, only)
	}
	if err := listing.send(shutMessage(request, mark)); err != nil {
		return false, fmt.Errorf("ask for flows: %w", err)
	}
	r := reading{socket: listing, only: only, each: each, honoured: true}
	for !r.done {
		if err := ctx.Err(); err != nil {
			return false, context.Cause(ctx)
		}
		if err := r.next(); err != nil {
			return false, fmt.Errorf("list flows: %w", err)
		}
	}
	return r.honoured, nil
}

// remove deletes flows in one request. The kernel works it off before the call
// that sends it returns, says what it could not delete, and at the end that it
// has got there.
func (n *netfilter) remove(identities [][]byte) ([]error, error) {
	if n.deleting == nil {
		opened, err := n.open()
		if err != nil {
			return nil, err
		}
		n.deleting = opened
	}
	s := n.deleting
	first := s.sequence + 1
	var request []byte
	for i, identity := range identities {
		s.sequence++
		flags := uint16(0)
		if i == len(identities)-1 {
			flags = unix.NLM_F_ACK
		}
		var mark int
		request, mark = openMessage(request, messageDelete, flags, s.sequence, n.family)
		request = shutMessage(appendIdentity(request, identity), mark)
	}
	if err := s.send(request); err != nil {
		return nil, fmt.Errorf("delete flows: %w", err)
	}
	outcomes := make([]error, len(identities))
	for answered := false; !answered; {
		datagram, err := s.receive()
		if err != nil {
			return nil, fmt.Errorf("delete flows: %w", err)
		}
		for m := range messages(datagram) {
			if at := m.sequence - first; m.kind == unix.NLMSG_ERROR && at < uint32(len(outcomes)) {
				outcomes[at] = outcome(m.failure())
				answered = answered || m.sequence == s.sequence
			}
		}
	}
	return outcomes, nil
}

func outcome(err error) error {
	if errors.Is(err, unix.ENOENT) {
		return errGone
	}
	return err
}
