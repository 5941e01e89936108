// SPDX-License-Identifier: Apache-2.0

package inspection

import (
	"cmp"
	"context"
	"slices"

	"github.com/sluice-proxy/sluice/dataplane/conntrack"
	"github.com/sluice-proxy/sluice/dataplane/userspace"
	"github.com/sluice-proxy/sluice/internal/inspect"
	"github.com/sluice-proxy/sluice/service"
)

// Connections returns the open connections that this process forwards, or that the kernel translates.
func (i *Inspection) Connections(above uint64, most int, wanted func(*inspect.Connection) bool) (made []inspect.Connection, more bool, err error) {
	if !i.Backend.Mode.Forwards {
		return i.translated(above, most, wanted)
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
		ToEndpoint: o.ToTargets.Load(), ToClient: o.ToClients.Load(), Began: o.Began.UTC(),
	}
}

// translated returns the connections to frontends of Services that the kernel translates: those with the smallest
// numbers larger than above. It keeps few of them in memory, however many there are.
func (i *Inspection) translated(above uint64, most int, wanted func(*inspect.Connection) bool) (made []inspect.Connection, more bool, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), trackedTime)
	defer cancel()
	byNumber := func(a, b inspect.Connection) int { return cmp.Compare(a.Number, b.Number) }
	for _, family := range service.Families {
		err := conntrack.Translated(ctx, family, func(t conntrack.Connection) {
			// A number is one of 32 bits for each family.
			number := uint64(t.Number)<<1 | uint64(family)
			if c, ok := i.tracked(family, &t); ok && number > above && wanted(&c) {
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

// tracked returns a connection that the kernel translates, if its destination is a frontend of a Service.
func (i *Inspection) tracked(family service.Family, t *conntrack.Connection) (made inspect.Connection, ok bool) {
	f, ok := t.Tuple().Frontend()
	if !ok {
		return made, false
	}
	key, port, ok := i.Proxy.OwnerPort(family, f)
	return inspect.Connection{
		Namespace: key.Namespace, Name: key.Name, PortName: port, Protocol: f.Protocol.String(),
		Client: t.From, Frontend: t.To, Endpoint: t.Answerer,
		ToEndpoint: t.Carried.BytesIn, ToClient: t.Carried.BytesOut, Began: t.Began.UTC(),
		Tracked: &inspect.Tracked{State: t.State, Offloaded: t.Offloaded, Accounted: t.Accounted},
	}, ok
}
