// SPDX-License-Identifier: Apache-2.0

//go:build linux

package explain

import (
	"net/netip"
	"time"

	nftrender "github.com/sluice-proxy/sluice/dataplane/nftables/render"
	"github.com/sluice-proxy/sluice/service"
)

// Memory reads the entries that the kernel keeps for clients of Services with affinity.
type Memory interface {
	// InMap returns the entry of a client in a map of nf_tables.
	InMap(family service.Family, name string, client netip.Addr) (what nftrender.AffinityEntry, known bool, err error)
	// InList returns how long ago a list of xt_recent has last seen a client.
	InList(family service.Family, list string, client netip.Addr) (age time.Duration, known bool, err error)
}

// recallMaps looks the client up in each map of the concerned Services in the kernel.
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
