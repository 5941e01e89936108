// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-proxy/sluice/service"
)

// TestExplain_Balancing: the answer contains what decides about the endpoint, and the probabilities.
func TestExplain_Balancing(t *testing.T) {
	for name, c := range map[string]struct {
		mode     string
		by       service.Balancing
		weight   uint16
		port     uint16
		certain  bool
		heaviest float64
		reason   string
	}{
		"hash of the source":         {mode: NFTables, by: service.SourceHash, certain: true, reason: "balancing is sourceHash"},
		"hash of a connection":       {mode: NFTables, by: service.ConnectionHash, port: 1234, certain: true, reason: "10.244.9.9:1234 goes to one endpoint"},
		"hash of any connection":     {mode: NFTables, by: service.ConnectionHash, heaviest: 0.25, reason: "the client's port decides"},
		"turns":                      {mode: NFTables, by: service.RoundRobin, heaviest: 0.25, reason: "endpoints take turns"},
		"weights":                    {mode: NFTables, weight: 5, heaviest: 0.625, reason: "endpoints have weights"},
		"weights in turn":            {mode: NFTables, by: service.RoundRobin, weight: 5, heaviest: 0.625, reason: "endpoints have weights"},
		"weights in iptables mode":   {mode: IPTables, weight: 5, heaviest: 0.625, reason: "endpoints have weights"},
		"weights in IPVS mode":       {mode: IPVS, weight: 5, heaviest: 0.625},
		"hash of the source in IPVS": {mode: IPVS, by: service.SourceHash, reason: "the scheduler mh chooses by a hash of the client's address"},
		"hash of a connection, IPVS": {mode: IPVS, by: service.ConnectionHash, reason: "the scheduler mh chooses by a hash of the client's address and port"},
	} {
		t.Run(name, func(t *testing.T) {
			s := made("web", "10.244.2.1", "10.244.2.2", "10.244.2.3")
			s.spec.Balancing = c.by
			state := newState(c.mode, s)
			heavy := service.Slice{Service: s.spec.Key, Name: "web-2", Weight: c.weight, Ports: s.slice.Ports, Endpoints: []service.SliceEndpoint{
				{Addr: netip.MustParseAddr("10.244.2.4"), Ready: true, Serving: true},
			}}
			state.Services.(interface{ SetSlice(*service.Slice) }).SetSlice(&heavy)
			a, err := Explain(state, Flow{From: netip.AddrPortFrom(netip.MustParseAddr("10.244.9.9"), c.port), To: netip.MustParseAddrPort("172.30.0.41:80")})
			if err != nil {
				t.Fatal(err)
			}
			if certain := len(a.Outcomes) == 1 && a.Outcomes[0].Probability == 1; certain != c.certain {
				t.Errorf("outcomes %+v, want a certain one: %v", a.Outcomes, c.certain)
			}
			if most := a.Outcomes[0].Probability; c.heaviest > 0 && (most < c.heaviest-0.06 || most > c.heaviest+0.06) {
				t.Errorf("probability %v, want about %v", most, c.heaviest)
			}
			if !slices.ContainsFunc(a.Reasons, func(text string) bool { return strings.Contains(text, c.reason) }) {
				t.Errorf("reasons %q, want %q", a.Reasons, c.reason)
			}
		})
	}
}
