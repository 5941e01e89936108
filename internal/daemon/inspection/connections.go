package inspection

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/sluice-proxy/sluice/dataplane/conntrack"
	"github.com/sluice-proxy/sluice/dataplane/userspace"
	"github.com/sluice-proxy/sluice/internal/daemon/config"
	"github.com/sluice-proxy/sluice/internal/inspect"
	"github.com/sluice-proxy/sluice/service"
)

// Connections returns the open connections that this process forwards, or that the kernel translates.
func (i *Inspection) Connections(above uint64, most int, wanted func(*inspect.Connection) bool) (made []inspect.Connection, more bool, err error) {
	switch i.Backend.Mode {
	case config.ModeUserspace:
	case config.ModeNFTables:
		return i.translated(above, most, wanted)
	default:
		return nil, false, fmt.Errorf("mode %s: the kernel forwards connections, and this proxy sees none of them; "+
			"conntrack -L lists them, and ipvsadm -Lnc in IPVS mode", i.Backend.Mode)
	}
	found, more := i.Forwarders.Registry().Connections(above, most, func(o *userspace.Open) bool {
		c := connectionOf(o)
		return wanted(&c)
	})
	for _, o := range found {
		made = append(made, connectionOf(o))
	}
	return made, more, nil
}

func connectionOf(o *userspace.Open) inspect.Connection {
	return inspect.Connection{
		Number: o.Number, Namespace: o.Port.Service.Namespace, Name: o.Port.Service.Name, PortName: o.Port.Name,
		Protocol: o.Place.Protocol.String(), Client: o.Client, Frontend: o.Place.At, Endpoint: o.Target,
		ToEndpoint: o.ToTargets.Load(), ToClient: o.ToClients.Load(), Began: utc(o.Began),
	}
}

// translated returns the connections to frontends of Services that the kernel translates, those with the
// smallest numbers above one. It keeps few of them, however many there are.
func (i *Inspection) translated(above uint64, most int, wanted func(*inspect.Connection) bool) (made []inspect.Connection, more bool, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), trackedTime)
	defer cancel()
	owners := i.owners()
	byNumber := func(a, b inspect.Connection) int { return cmp.Compare(a.Number, b.Number) }
	for _, family := range service.Families {
		err := conntrack.Translated(ctx, family, func(t conntrack.Connection) {
			// A number is one of 32 bits for each family.
			number := uint64(t.Number)<<1 | uint64(family)
			if c, ok := owners.connection(&t); ok && number > above && wanted(&c) {
				c.Number = number
				if made = append(made, c); len(made) > 4*most {
					slices.SortFunc(made, byNumber)
					made = made[:most+1]
				}
			}
		})
		if err != nil {
			return nil, false, err
		}
	}
	slices.SortFunc(made, byNumber)
	more = len(made) > most
	return made[:min(len(made), most)], more, nil
}

// owners has the Service port that has each frontend.
type owners map[service.Frontend]owner

type owner struct {
	key  service.Key
	port string
}

func (i *Inspection) owners() owners {
	all := owners{}
	for _, key := range i.Proxy.Keys() {
		spec := i.Proxy.Snapshot(key).Spec
		spec.Claims(func(family service.Family, f service.Frontend, _ service.ClaimKind) {
			if _, denied := spec.DeniedBy(family, f); denied {
				return
			}
			at := slices.IndexFunc(spec.Ports, func(p service.Port) bool {
				return p.Protocol == f.Protocol && (f.Addr.IsValid() && p.Port == f.Port || !f.Addr.IsValid() && p.NodePort == f.Port)
			})
			all[f] = owner{key, spec.Ports[at].Name}
		})
	}
	return all
}

// connection returns a connection that the kernel translates, if a Service has its destination.
func (o owners) connection(t *conntrack.Connection) (made inspect.Connection, ok bool) {
	for _, protocol := range []service.Protocol{service.TCP, service.UDP, service.SCTP} {
		if protocol.Number() != t.Protocol {
			continue
		}
		of, ok := o[service.Frontend{Addr: t.To.Addr(), Port: t.To.Port(), Protocol: protocol}]
		if !ok {
			of, ok = o[service.Frontend{Port: t.To.Port(), Protocol: protocol}]
		}
		return inspect.Connection{
			Namespace: of.key.Namespace, Name: of.key.Name, PortName: of.port, Protocol: protocol.String(),
			Client: t.From, Frontend: t.To, Endpoint: t.Answerer,
			Tracked: &inspect.Tracked{State: t.State, Offloaded: t.Offloaded},
		}, ok
	}
	return made, false
}
