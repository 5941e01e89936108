package genl

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/nftables/wire"
)

// question asks the kernel for something.
type question struct {
	kind    uint16
	command uint8
	// flags are NLM_F_DUMP for a listing, NLM_F_ACK for one answer.
	flags uint16
	attrs []byte
}

// ask sends a question and gives the attributes of each message of the answer,
// valid during the call. A no is a syscall.Errno. After the end of the context, what
// is left of the answer is received, so that the next exchange starts with an empty
// socket, and thrown away.
func (s *Socket) ask(ctx context.Context, q question, each func(attrs []byte)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.seq++
	var mark int
	s.out, mark = open(s.out[:0], q.kind, q.flags, s.seq, q.command)
	s.out = shut(append(s.out, q.attrs...), mark)
	if err := s.send(s.out, 1); err != nil {
		return fmt.Errorf("ask the kernel: %w", err)
	}
	lost := false
	for {
		datagram, err := s.receive()
		switch {
		case errors.Is(err, unix.ENOBUFS):
			lost = true
			continue
		case errors.Is(err, unix.EAGAIN):
			return ErrUnanswered
		case err != nil:
			return fmt.Errorf("receive the kernel's answer: %w", err)
		}
		for h := range headers(datagram) {
			switch {
			case h.seq != s.seq:
			case h.kind == unix.NLMSG_ERROR || h.kind == unix.NLMSG_DONE:
				return ending(ctx, h, lost)
			case ctx.Err() == nil:
				each(h.attributes())
			}
		}
	}
}

// ending tells how an answer ended.
func ending(ctx context.Context, h header, lost bool) error {
	if errno := errnoAt(h.payload); errno != 0 {
		return errno
	}
	if lost {
		return ErrUnanswered
	}
	return ctx.Err()
}

// Services lists the virtual servers of both families, in the kernel's order.
// Those for packets with a mark have no frontend and are left out. If somebody
// changes them meanwhile, the list may lack some that are there: the kernel does
// not tell.
func (s *Socket) Services(ctx context.Context) ([]Service, error) {
	var services []Service
	err := s.eachService(ctx, func(service Service, _ []byte) { services = append(services, service) })
	return services, err
}

// Stats gives what the kernel has counted, by virtual server.
func (s *Socket) Stats(ctx context.Context) (map[dataplane.Frontend]Stats, error) {
	stats := map[dataplane.Frontend]Stats{}
	err := s.eachService(ctx, func(service Service, attrs []byte) {
		stats[service.Frontend] = parseStats(attrs, serviceStats64, serviceStats)
	})
	return stats, err
}

func (s *Socket) eachService(ctx context.Context, each func(s Service, attrs []byte)) error {
	q := question{kind: s.family, command: getService, flags: unix.NLM_F_DUMP}
	err := s.ask(ctx, q, func(attrs []byte) {
		nested := wire.Find(attrs, commandService).Data
		if service, ok := parseService(nested); ok {
			each(service, nested)
		}
	})
	if err != nil {
		return fmt.Errorf("list virtual servers: %w", err)
	}
	return nil
}

// Service gives one virtual server; see Missing for the error when there is none.
func (s *Socket) Service(ctx context.Context, f dataplane.Frontend) (Service, error) {
	var found Service
	ok := false
	q := question{kind: s.family, command: getService, flags: unix.NLM_F_ACK, attrs: appendFrontend(nil, f, nil)}
	err := s.ask(ctx, q, func(attrs []byte) {
		found, ok = parseService(wire.Find(attrs, commandService).Data)
	})
	if err == nil && !ok {
		err = ErrUnanswered
	}
	if err != nil {
		return Service{}, fmt.Errorf("look at virtual server %s: %w", f, err)
	}
	return found, nil
}

// Destinations lists the real servers of one virtual server, in the kernel's
// order. Of one that is not there the list is empty: the kernel does not tell.
func (s *Socket) Destinations(ctx context.Context, f dataplane.Frontend) ([]Destination, error) {
	var destinations []Destination
	q := question{kind: s.family, command: getDestination, flags: unix.NLM_F_DUMP, attrs: appendFrontend(nil, f, nil)}
	err := s.ask(ctx, q, func(attrs []byte) {
		if d, ok := parseDestination(wire.Find(attrs, commandDestination).Data, family(f.Addr)); ok {
			destinations = append(destinations, d)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("list real servers of %s: %w", f, err)
	}
	return destinations, nil
}

// Server is a virtual server with its real servers.
type Server struct {
	Service
	Destinations []Destination
}

// Servers lists the virtual servers that are wanted, all if that is nil, with
// their real servers. It takes a question for each: the kernel neither lists all
// real servers nor takes a second question for a list before the first is answered.
func (s *Socket) Servers(ctx context.Context, wanted func(Service) bool) ([]Server, error) {
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
