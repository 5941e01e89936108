package ipvs

import (
	"context"
	"errors"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/ipvs/device"
	"github.com/sluice-proxy/sluice/dataplane/ipvs/genl"
	"github.com/sluice-proxy/sluice/dataplane/ipvs/ipset"
)

// serverSocket is what a Writer needs of its connection to IPVS; see genl.Socket.
type serverSocket interface {
	do(ctx context.Context, requests []request) []error
	Service(ctx context.Context, f dataplane.Frontend) (genl.Service, error)
	Destinations(ctx context.Context, f dataplane.Frontend) ([]genl.Destination, error)
	Servers(ctx context.Context, wanted func(genl.Service) bool) ([]genl.Server, error)
	Written() dataplane.Written
	Close() error
}

// setSocket is what a Writer needs of its connection to sets; see ipset.Socket.
type setSocket interface {
	Create(ctx context.Context, specs []ipset.Spec) []error
	Destroy(ctx context.Context, names []string) []error
	Swap(ctx context.Context, one, other string) error
	Add(ctx context.Context, changes []ipset.Change) []error
	Delete(ctx context.Context, changes []ipset.Change) []error
	Get(ctx context.Context, name string) (ipset.Set, error)
	List(ctx context.Context, wanted func(name string) bool) ([]ipset.Set, error)
	Close() error
}

// dummyDevice is what a Writer needs of the device; see device.Device.
type dummyDevice interface {
	Exists() (bool, error)
	Ensure() error
	Delete() error
	Add(ctx context.Context, addresses []netip.Addr) []error
	Remove(ctx context.Context, addresses []netip.Addr) []error
	Addresses(family int) (own, others []netip.Addr, err error)
	Watch(ctx context.Context, changed func()) error
	Close() error
}

// kernelSockets are the connections that are given up when an answer was lost.
type kernelSockets struct {
	servers serverSocket
	sets    setSocket
}

func (k *kernelSockets) close() error { return errors.Join(k.servers.Close(), k.sets.Close()) }

// openKernel opens both in the network namespace of a function.
func openKernel(inside func(func() error) error) (*kernelSockets, error) {
	var servers *genl.Socket
	var sets *ipset.Socket
	err := inside(func() (err error) {
		if servers, err = genl.Open(); err != nil {
			return err
		}
		if sets, err = ipset.Open(); err != nil {
			return errors.Join(err, servers.Close())
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return &kernelSockets{servers: wiredServers{servers}, sets: sets}, nil
}

// wiredServers is the kernel's IPVS.
type wiredServers struct{ *genl.Socket }

func (s wiredServers) do(ctx context.Context, requests []request) []error {
	wired := make([]genl.Request, len(requests))
	for i, r := range requests {
		wired[i] = r.wire()
	}
	return s.Do(ctx, wired)
}

// isLost reports whether an error leaves open what happened, since an answer is missing.
func isLost(err error) bool {
	return errors.Is(err, genl.ErrUnanswered) || ipset.Unknown(err) || device.Unknown(err)
}

// isStray reports whether an error says that the kernel is not as it was left: what the
// request builds upon is not there.
func isStray(err error) bool {
	if misfit, ok := errors.AsType[*misfitError](err); ok && misfit != nil {
		return true
	}
	return errors.Is(err, ipset.ErrNoSet) || errors.Is(err, device.ErrNoDevice)
}

// isBusy reports whether the same request may work later.
func isBusy(err error) bool {
	for _, reason := range []error{ipset.ErrInUse, unix.ENOBUFS, unix.ENOMEM, unix.EAGAIN, unix.EINTR} {
		if errors.Is(err, reason) {
			return true
		}
	}
	var unsent *genl.NotSentError
	return errors.As(err, &unsent)
}

// isMissingReal reports whether a request failed for want of the real server that it is
// about, of a virtual server that is there.
func isMissingReal(err error) bool { return genl.Missing(err) && errors.Is(err, unix.ENOENT) }

// outcomeOf tells what an error about one object means for the batch.
func outcomeOf(err error) dataplane.Outcome {
	switch {
	case err == nil:
		return dataplane.Landed
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded), isLost(err), isStray(err):
		return dataplane.Unknown
	case isBusy(err):
		return dataplane.Busy
	case errors.Is(err, ipset.ErrUnsupported):
		return dataplane.Unsupported
	default:
		return dataplane.Rejected
	}
}
