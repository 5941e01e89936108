package network

import (
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/scenarios/fixture"
)

// moreAddresses is where the further addresses of a client begin. Those of p1 are
// pods of n1, those of x are in the allowed range.
var moreAddresses = map[string][2]string{
	"p1": {"10.244.1.64", "fd00:10:244:1::1:0"},
	"x":  {"203.0.113.64", "2001:db8:ffff::1000"},
}

// moreMax is how many further addresses there may be.
const moreMax = 60

// Sources gives a client that many addresses in a family besides its usual one,
// unless it has them, and lists them.
func (n *Network) Sources(client string, family service.Family, count int) ([]netip.Addr, error) {
	first, ok := moreAddresses[client]
	if !ok || count > moreMax {
		return nil, fmt.Errorf("%d addresses of %s: want p1 or x, and at most %d", count, client, moreMax)
	}
	host, err := n.Host(client)
	if err != nil {
		return nil, err
	}
	var all []netip.Addr
	for a := netip.MustParseAddr(first[family]); len(all) < count; a = a.Next() {
		if err := host.AddAddress("lo", single(a)); err != nil && !errors.Is(err, unix.EEXIST) {
			return nil, err
		}
		if err := n.Node().AddRoute(single(a), fixture.MustAddress(family, client)); err != nil && !errors.Is(err, unix.EEXIST) {
			return nil, err
		}
		all = append(all, a)
	}
	return all, nil
}
