package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"sync"
	"time"

	"github.com/moby/ipvs"
	"github.com/sirupsen/logrus"
	library "github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/service"
)

// ErrUnavailable means that the kernel has no IPVS.
var ErrUnavailable = errors.New(
	"the kernel has no IPVS: its module ip_vs is missing or cannot be loaded (modprobe ip_vs)")

// Available reports whether the kernel has IPVS, which may load its module. The error
// matches ErrUnavailable if it has not.
func Available() error {
	_, err := lookUp(familyName)
	return err
}

// familyName is IPVS among the families of generic netlink. When it is looked up, the
// kernel loads the module by its alias if it may.
const familyName = "IPVS"

// lookUp returns the number of a family.
func lookUp(name string) (uint16, error) {
	family, err := library.GenlFamilyGet(name)
	if errors.Is(err, unix.ENOENT) {
		return 0, ErrUnavailable
	}
	if err != nil {
		return 0, fmt.Errorf("look for %s in the kernel: %w", name, err)
	}
	return family.ID, nil
}

// Servers reads virtual servers, and changes single ones. It belongs to the network
// namespace of the thread that opened it. Use it from one goroutine at a time.
type Servers struct{ handle *ipvs.Handle }

// quietLibrary discards what the library logs: it runs modprobe once and warns of a
// failure, although the kernel has the family.
var quietLibrary = sync.OnceFunc(func() { logrus.SetOutput(io.Discard) })

// OpenServers opens a connection in the network namespace of the calling thread. The
// error matches ErrUnavailable when the kernel has no IPVS.
func OpenServers() (*Servers, error) {
	// The library looks for the family once per process and keeps the number 0 if it
	// did not find it. The kernel takes everything sent to that number for done.
	if err := Available(); err != nil {
		return nil, err
	}
	quietLibrary()
	handle, err := ipvs.New("")
	if err != nil {
		return nil, fmt.Errorf("open a connection to IPVS: %w", err)
	}
	if handle.IsServicePresent(&ipvs.Service{}) {
		handle.Close()
		return nil, errors.New("open a connection to IPVS: the first attempt of this process failed; restart it")
	}
	return &Servers{handle}, nil
}

// Close closes the connection.
func (s *Servers) Close() error {
	s.handle.Close()
	return nil
}

// Services lists the virtual servers of both families, in the kernel's order. Those for
// packets with a mark have no frontend and are left out. The kernel does not say if
// others changed virtual servers meanwhile; the list may then lack some.
func (s *Servers) Services(ctx context.Context) ([]Service, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	found, err := s.handle.GetServices()
	if err != nil {
		return nil, fmt.Errorf("list virtual servers: %w", answerOf(err))
	}
	services := make([]Service, 0, len(found))
	for _, l := range found {
		if service, ok := serviceOf(l); ok {
			services = append(services, service)
		}
	}
	return services, nil
}

// Service returns one virtual server. The error matches Missing if there is none.
func (s *Servers) Service(ctx context.Context, f service.Frontend) (Service, error) {
	if ctx.Err() != nil {
		return Service{}, context.Cause(ctx)
	}
	found, err := s.handle.GetService(identify(f))
	if err != nil {
		return Service{}, fmt.Errorf("look at virtual server %s: %w", f, answerOf(err))
	}
	service, ok := serviceOf(found)
	if !ok {
		return Service{}, fmt.Errorf("look at virtual server %s: %w", f, ErrUnanswered)
	}
	return service, nil
}

// Destinations lists the real servers of a virtual server, in the kernel's order. The
// list is empty if there is no such virtual server; the kernel does not say so.
func (s *Servers) Destinations(ctx context.Context, f service.Frontend) ([]Destination, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	found, err := s.handle.GetDestinations(identify(f))
	if err != nil {
		return nil, fmt.Errorf("list real servers of %s: %w", f, answerOf(err))
	}
	destinations := make([]Destination, 0, len(found))
	for _, l := range found {
		if d, ok := destinationOf(l); ok {
			destinations = append(destinations, d)
		}
	}
	return destinations, nil
}

// List lists the virtual servers that are wanted, all if that is nil, with their real
// servers. This takes a question for each virtual server.
func (s *Servers) List(ctx context.Context, wanted func(Service) bool) ([]Server, error) {
	services, err := s.Services(ctx)
	if err != nil {
		return nil, err
	}
	servers := make([]Server, 0, len(services))
	for _, service := range services {
		if wanted != nil && !wanted(service) {
			continue
		}
		destinations, err := s.Destinations(ctx, service.Frontend)
		if err != nil {
			return nil, err
		}
		servers = append(servers, Server{Service: service, Destinations: destinations})
	}
	return servers, nil
}

// Create makes one virtual server. The error is a *Rejection with ENOENT if the kernel
// lacks its scheduler.
func (s *Servers) Create(service Service) error {
	err := s.handle.NewService(libraryService(service))
	return rejection(Request{Verb: NewService, Service: service}, err)
}

// Delete removes one virtual server with its real servers. The error matches Missing if
// there is none.
func (s *Servers) Delete(f service.Frontend) error {
	err := s.handle.DelService(identify(f))
	return rejection(Request{Verb: DelService, Service: Service{Frontend: f}}, err)
}

// Timeouts are how long the kernel remembers idle connections, in whole seconds.
type Timeouts struct {
	TCP time.Duration
	// TCPFin is that of a TCP connection that is being closed.
	TCPFin time.Duration
	UDP    time.Duration
}

// SetTimeouts changes the timeouts that are above 0. It rounds up to whole seconds.
func (s *Servers) SetTimeouts(t Timeouts) error {
	if t == (Timeouts{}) {
		return nil
	}
	config := &ipvs.Config{
		TimeoutTCP: wholeSeconds(t.TCP), TimeoutTCPFin: wholeSeconds(t.TCPFin), TimeoutUDP: wholeSeconds(t.UDP),
	}
	if err := s.handle.SetConfig(config); err != nil {
		return fmt.Errorf("set the timeouts of IPVS: %w", answerOf(err))
	}
	return nil
}

func wholeSeconds(d time.Duration) time.Duration {
	return time.Duration(min(math.Ceil(max(d, 0).Seconds()), math.MaxInt32)) * time.Second
}
