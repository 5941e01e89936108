//go:build linux

package explain

import (
	"net/netip"
	"time"

	nftrender "github.com/sluice-proxy/sluice/dataplane/nftables/render"
	"github.com/sluice-proxy/sluice/service"
)

// Memory is what the kernel remembers of clients of Services with affinity.
type Memory interface {
	// InMap returns what a map of nf_tables remembers of a client.
	InMap(family service.Family, name string, client netip.Addr) (what nftrender.AffinityEntry, known bool, err error)
	// InList returns how long ago a list of xt_recent has last seen a client.
	InList(family service.Family, list string, client netip.Addr) (age time.Duration, known bool, err error)
}

// recallMaps asks the kernel for the client in each map of the Services concerned.
func (e *explanation) recallMaps(rules *nftRules) error {
	for _, name := range rules.clientMaps() {
		what, known, err := e.Memory.InMap(e.family, name, e.From.Addr())
		if err != nil {
			return err
		}
		if known {
			rules.remember(name, e.From.Addr(), what)
		}
	}
	return nil
}

// recallList does the same for one list of iptables mode.
func (e *explanation) recallList(list string, client netip.Addr) (time.Duration, bool) {
	age, known, err := e.Memory.InList(e.family, list, client)
	if err != nil {
		e.forgot = err
	}
	return age, known
}
