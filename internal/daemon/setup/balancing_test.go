package setup

import (
	"testing"

	"github.com/spf13/pflag"

	"github.com/sluice-proxy/sluice/internal/daemon/config"
	"github.com/sluice-proxy/sluice/service"
)

func TestImpossibleBalancing(t *testing.T) {
	for _, c := range []struct {
		backend  Backend
		possible []service.Balancing
		blind    bool
	}{
		{Backend{Mode: config.ModeNFTables}, []service.Balancing{service.Random, service.RoundRobin, service.SourceHash, service.ConnectionHash, service.LeastConnections}, false},
		{Backend{Mode: config.ModeNFTables}, []service.Balancing{service.Random, service.RoundRobin, service.SourceHash, service.ConnectionHash}, true},
		{Backend{Mode: config.ModeIPVS}, []service.Balancing{service.Random, service.RoundRobin, service.SourceHash, service.ConnectionHash, service.LeastConnections}, true},
		{Backend{Mode: config.ModeNFTables, NoHashing: true}, []service.Balancing{service.Random, service.RoundRobin, service.LeastConnections}, false},
		{Backend{Mode: config.ModeIPTables}, []service.Balancing{service.Random}, false},
	} {
		observe := !c.blind
		o := Options{Flags: config.BindServing(pflag.NewFlagSet("test", pflag.ContinueOnError))}
		check(t, o.Load())
		o.Sluice.Balancing.ObserveConnections = &observe
		impossible := c.backend.impossibleBalancing(&o)
		for _, by := range c.possible {
			if why := impossible[by]; why != "" {
				t.Errorf("%+v: %v %s", c.backend, by, why)
			}
		}
		if len(impossible)+len(c.possible) != len(service.Balancings()) {
			t.Errorf("%+v: impossible are %v", c.backend, impossible)
		}
	}
}
