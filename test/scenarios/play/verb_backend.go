package play

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/sluice-proxy/sluice/test/scenarios/fixture"
	"github.com/sluice-proxy/sluice/test/scenarios/network"
)

// What runs in a pod comes and goes. Who has ended refuses connections.
var _ = define("backend", verb{usage: "backend a ends, or backend a begins", kernel: true, parse: parseBackend})

func parseBackend(words []string) (statement, error) {
	if len(words) != 2 || (words[1] != "ends" && words[1] != "begins") {
		return nil, errors.New("want NAME ends, or NAME begins")
	}
	name, ends := words[0], words[1] == "ends"
	if !known(name) {
		return nil, fmt.Errorf("%q: want an endpoint", name)
	}
	return settled(func(_ context.Context, s *Stage, w *network.World) error {
		var errs []error
		for _, family := range s.families {
			at := netip.AddrPortFrom(fixture.MustAddress(family, name), fixture.EndpointPort)
			if ends {
				errs = append(errs, w.Leave(at))
			} else {
				errs = append(errs, w.Serve(name, name, at))
			}
		}
		return errors.Join(errs...)
	}), nil
}
