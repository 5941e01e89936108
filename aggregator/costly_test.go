// SPDX-License-Identifier: Apache-2.0

package aggregator

import (
	"strings"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// TestMachine_LongChainIsCharged: a Service whose long chain takes most of a write has to wait, like a Service with
// many objects. In iptables mode, a port with 5,000 endpoints is one object.
func TestMachine_LongChainIsCharged(t *testing.T) {
	long, short := service.Key{Namespace: "a", Name: "long"}, service.Key{Namespace: "a", Name: "short"}
	chain := func(rules int) *dataplane.Object {
		const rule = "-p tcp -m statistic --mode random --probability 0.5 -j DNAT --to-destination 10.0.0.1:80\n"
		return &dataplane.Object{Body: strings.Repeat(rule, rules)}
	}
	m := &machine{costly: map[service.Key]*costly{}}
	now := time.Now()
	r := &result{receipt: dataplane.Receipt{Outcome: dataplane.Landed, Took: 100 * time.Millisecond}}
	r.batch = &dataplane.Batch{
		Changes: []dataplane.Change{
			{ID: dataplane.ID{Name: "long"}, Owner: long, Before: chain(5000), After: chain(4999)},
			{ID: dataplane.ID{Name: "short"}, Owner: short, After: chain(50)},
		},
		Contributions: []dataplane.Contribution{{Key: long}, {Key: short}},
	}
	m.charge(now, r)
	if c := m.costly[long]; c == nil || c.until.Before(now.Add(900*time.Millisecond)) || m.costly[short] != nil {
		t.Errorf("after a write of 100 ms, nearly all of it one chain, these wait: %+v", m.costly)
	}
}
