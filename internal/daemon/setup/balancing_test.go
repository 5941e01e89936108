// SPDX-License-Identifier: Apache-2.0

package setup

import (
	"testing"

	"github.com/spf13/pflag"

	"github.com/sluice-proxy/sluice/internal/daemon/config"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/testenv"
)

func TestImpossibleBalancing(t *testing.T) {
	for _, c := range []struct {
		backend  Backend
		possible []service.Balancing
	}{
		{Backend{Mode: NFTables}, []service.Balancing{service.Random, service.RoundRobin, service.SourceHash, service.ConnectionHash, service.LeastConnections}},
		{Backend{Mode: IPVS}, []service.Balancing{service.Random, service.RoundRobin, service.SourceHash, service.ConnectionHash, service.LeastConnections}},
		{Backend{Mode: NFTables, NoHashing: true}, []service.Balancing{service.Random, service.RoundRobin, service.LeastConnections}},
		{Backend{Mode: IPTables}, []service.Balancing{service.Random}},
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

// TestUnobserved: connections are observed in the namespaces that the operator names, and nowhere by default. Userspace
// mode needs no observation, and IPVS mode none for leastConnections.
func TestUnobserved(t *testing.T) {
	for _, c := range []struct {
		mode      Mode
		flags     []string
		shop, web bool
		least     bool
	}{
		{NFTables, nil, true, true, true},
		{NFTables, []string{testenv.Settings(t, "balancing: {observeConnections: shop}")}, false, true, true},
		{IPVS, []string{testenv.Settings(t, "balancing: {observeConnections: all}")}, false, false, false},
		{Userspace, nil, false, false, false},
	} {
		set := pflag.NewFlagSet("test", pflag.ContinueOnError)
		o := Options{Flags: config.BindServing(set)}
		check(t, set.Parse(c.flags))
		check(t, o.Load())
		p := o.Objects(&Backend{Mode: c.mode}, nil).Policy
		unobserved := func(namespace string) bool { return p.Unobserved != nil && p.Unobserved(namespace) }
		if unobserved("shop") != c.shop || unobserved("web") != c.web || p.UnobservedLeast != c.least {
			t.Errorf("%+v: shop %t, web %t, leastConnections %t", c, unobserved("shop"), unobserved("web"), p.UnobservedLeast)
		}
	}
}
