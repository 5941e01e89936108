package inspection

import (
	"fmt"

	"github.com/sluice-proxy/sluice/dataplane/userspace"
	"github.com/sluice-proxy/sluice/internal/daemon/config"
	"github.com/sluice-proxy/sluice/internal/inspect"
)

// Connections returns the open connections that this process forwards.
func (i *Inspection) Connections(above uint64, most int, wanted func(*inspect.Connection) bool) (made []inspect.Connection, more bool, err error) {
	if i.Backend.Mode != config.ModeUserspace {
		return nil, false, fmt.Errorf("mode %s: the kernel has the connections, and this proxy sees none of them; "+
			"conntrack -L lists them, and ipvsadm -Lnc in mode ipvs", i.Backend.Mode)
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
