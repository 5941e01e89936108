package ipvs

import (
	"net/netip"

	"github.com/sluice-proxy/sluice/dataplane/ipvs/genl"
)

// verb is what is to be done to a virtual server or to one of its real ones.
type verb uint8

const (
	newServer verb = iota
	setServer
	deleteServer
	newReal
	setReal
	deleteReal
)

// request is one request to the kernel about a virtual server.
type request struct {
	verb verb
	// server is the virtual server; only its frontend counts for real ones.
	server genl.Service
	real   Real
}

// wire is the request as the kernel gets it.
func (r request) wire() genl.Request {
	switch f := r.server.Frontend; r.verb {
	case newServer:
		return genl.NewService(r.server)
	case setServer:
		return genl.SetService(r.server)
	case deleteServer:
		return genl.DelService(f)
	case newReal:
		return genl.NewDest(f, r.real.Addr, r.real.Weight)
	case setReal:
		return genl.SetDest(f, r.real.Addr, r.real.Weight)
	default:
		return genl.DelDest(f, r.real.Addr)
	}
}

// satisfied tells whether a refusal says that what was asked for is so already.
func (r request) satisfied(err error) bool {
	switch r.verb {
	case deleteServer:
		return genl.Missing(err)
	case deleteReal:
		return isMissingReal(err)
	default:
		return false
	}
}

// diff gives the requests that make one virtual server into another one, of the same
// frontend; nil is none. What comes goes first, and what is to get new connections
// before what is not to get them any more: a server that has endpoints for them before
// and after is never without. A scheduler, flags and a timeout change in place, with
// all connections.
func diff(before, after *Server) (come, goes []request) {
	if after == nil {
		if before == nil {
			return nil, nil
		}
		return nil, []request{{verb: deleteServer, server: before.Service}}
	}
	about := func(v verb, r Real) request { return request{verb: v, server: after.Service, real: r} }
	switch {
	case before == nil:
		before = &Server{}
		come = append(make([]request, 0, len(after.Reals)+1), about(newServer, Real{}))
	case before.Service != after.Service:
		come = append(come, about(setServer, Real{}))
	}
	left := make(map[netip.AddrPort]uint32, len(before.Reals))
	for _, r := range before.Reals {
		left[r.Addr] = r.Weight
	}
	var drained []request
	for _, r := range after.Reals {
		weight, there := left[r.Addr]
		delete(left, r.Addr)
		switch {
		case !there:
			come = append(come, about(newReal, r))
		case weight != r.Weight && r.Weight > 0:
			come = append(come, about(setReal, r))
		case weight != r.Weight:
			drained = append(drained, about(setReal, r))
		}
	}
	for _, r := range before.Reals {
		if _, leaves := left[r.Addr]; leaves {
			goes = append(goes, about(deleteReal, r))
		}
	}
	return append(come, drained...), goes
}
