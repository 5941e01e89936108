// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/moby/ipvs"
	library "github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/service"
)

// ErrUnavailable means that the kernel has no IPVS.
var ErrUnavailable = errors.New(
	"the kernel has no IPVS: its module ip_vs is missing or cannot be loaded (modprobe ip_vs)")

// Available returns nil if the kernel has IPVS. It may load the module. The error matches
// ErrUnavailable if the kernel has no IPVS.
func Available() error {
	_, err := lookUp(familyName)
	return err
}

// familyName is the generic netlink family of IPVS. When it is looked up, the kernel loads the
// module by its alias, if allowed.
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

// Servers reads virtual servers; a ServerWriter changes them. It belongs to the network
// namespace of the thread that opened it. Only one goroutine at a time may use it.
type Servers struct{ handle *ipvs.Handle }

// OpenServers opens a connection in the network namespace of the calling thread. The
// error matches ErrUnavailable when the kernel has no IPVS.
func OpenServers() (*Servers, error) {
	// The library looks up the family once per process, and uses the number 0 if it did
	// not find it. The kernel reports success for every request to that number.
	if err := Available(); err != nil {
		return nil, err
	}
	quietLibraries()
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

// Services lists the virtual servers of both families, in the kernel's order, without those for
// packets with a mark, which have no frontend. If another program changes virtual servers during the
// call, the list may be incomplete; the kernel does not report it.
func (s *Servers) Services(ctx context.Context) ([]Service, error) {
	var services []Service
	err := s.services(ctx, func(service Service, _ *ipvs.Service) { services = append(services, service) })
	return services, err
}

func (s *Servers) services(ctx context.Context, each func(Service, *ipvs.Service)) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	found, err := s.handle.GetServices()
	if err != nil {
		return fmt.Errorf("list virtual servers: %w", answerOf(err))
	}
	for _, l := range found {
		if service, ok := serviceOf(l); ok {
			each(service, l)
		}
	}
	return nil
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

// Destinations lists the real servers of a virtual server, in the kernel's order. If the virtual
// server does not exist, the list is empty, because the kernel returns no error.
func (s *Servers) Destinations(ctx context.Context, f service.Frontend) ([]Destination, error) {
	var destinations []Destination
	err := s.destinations(ctx, f, func(d Destination, _ *ipvs.Destination) { destinations = append(destinations, d) })
	return destinations, err
}

func (s *Servers) destinations(ctx context.Context, f service.Frontend, each func(Destination, *ipvs.Destination)) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	found, err := s.handle.GetDestinations(identify(f))
	if err != nil {
		return fmt.Errorf("list real servers of %s: %w", f, answerOf(err))
	}
	for _, l := range found {
		if d, ok := destinationOf(l); ok {
			each(d, l)
		}
	}
	return nil
}

// List lists the wanted virtual servers, all if wanted is nil, with their real servers. It makes
// one request for each virtual server.
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

// Timeouts are how long the kernel remembers idle connections, in whole seconds.
type Timeouts struct {
	TCP time.Duration
	// TCPFin is the timeout of a TCP connection that is being closed.
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
