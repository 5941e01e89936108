package explain

import (
	"net/netip"
	"time"

	"github.com/sluice-proxy/sluice/service"
)

// Memory is what the kernel remembers of clients of Services with affinity.
type Memory interface {
	// InSet returns for how much longer a set of nf_tables remembers a client.
	InSet(family service.Family, set string, client netip.Addr) (left time.Duration, known bool, err error)
	// InList returns how long ago a list of xt_recent has last seen a client.
	InList(family service.Family, list string, client netip.Addr) (age time.Duration, known bool, err error)
}

// recallSets asks the kernel for the client in each set of the Services concerned.
func (e *explanation) recallSets(rules *nftRules) error {
	for _, set := range rules.clientSets() {
		left, known, err := e.Memory.InSet(e.family, set, e.From.Addr())
		if err != nil {
			return err
		}
		if known {
			rules.remember(set, e.From.Addr(), left)
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
