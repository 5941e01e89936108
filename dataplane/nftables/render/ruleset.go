// SPDX-License-Identifier: Apache-2.0

package render

import (
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/nftables/rules"
	"github.com/sluice-proxy/sluice/internal/netlink"
	"github.com/sluice-proxy/sluice/service"
)

// Ruleset returns objects as a ruleset that can be evaluated for a packet. local reports whether an address is the
// node's own. Ruleset returns an error for an element whose set is missing.
func Ruleset(family service.Family, objects []dataplane.Object, local func(netip.Addr) bool) (*rules.Ruleset, error) {
	set := &rules.Ruleset{Family: family, Chains: make(map[string]*rules.Chain), Sets: make(map[string]*rules.Set), Local: local}
	for i := range objects {
		o := &objects[i]
		switch o.ID.Container {
		case ContainerChain:
			c := rules.DecodeChain(o.ID.Name, []byte(o.Body))
			set.Chains[c.Name] = &c
		case ContainerSet:
			s, err := definition(o.ID.Name)
			if err != nil {
				return nil, err
			}
			set.Sets[o.ID.Name] = &rules.Set{
				KeyBytes: keyBytes(dialects[family], s.key), Ranges: s.ranges, Elements: make(map[string]*rules.Element),
			}
		}
	}
	for i := range objects {
		name, ok := SetOf(objects[i].ID.Container)
		if !ok {
			continue
		}
		if set.Sets[name] == nil {
			return nil, fmt.Errorf("an element of the set %s, which is missing", name)
		}
		set.Sets[name].Elements[objects[i].ID.Name] = elementIn(&objects[i])
	}
	return set, nil
}

// elementIn reads an element of a set.
func elementIn(o *dataplane.Object) *rules.Element {
	e := &rules.Element{Key: o.ID.Name}
	data := netlink.Find([]byte(o.Body), unix.NFTA_SET_ELEM_DATA).Data
	if v, ok := rules.VerdictIn(data); ok {
		e.Verdict = &v
	} else {
		e.Data = string(netlink.Find(data, unix.NFTA_DATA_VALUE).Data)
	}
	return e
}
