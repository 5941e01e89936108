package setup

import (
	"testing"

	"github.com/sluice-proxy/sluice/internal/daemon/config"
	"github.com/sluice-proxy/sluice/service"
)

func TestImpossibleBalancing(t *testing.T) {
	for _, c := range []struct {
		backend  Backend
		possible []service.Balancing
	}{
		{Backend{Mode: config.ModeNFTables}, []service.Balancing{service.Random, service.RoundRobin, service.SourceHash, service.ConnectionHash, service.LeastConnections}},
		{Backend{Mode: config.ModeNFTables, NoHashing: true}, []service.Balancing{service.Random, service.RoundRobin, service.LeastConnections}},
		{Backend{Mode: config.ModeIPTables}, []service.Balancing{service.Random}},
	} {
		impossible := c.backend.impossibleBalancing()
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
