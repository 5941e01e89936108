// SPDX-License-Identifier: Apache-2.0

//go:build linux

package explain

import (
	"fmt"

	ipvsrender "github.com/sluice-proxy/sluice/dataplane/ipvs/render"
	ipvswire "github.com/sluice-proxy/sluice/dataplane/ipvs/wire"
)

// choice is how a virtual server may choose for a new connection.
type choice struct {
	// reals are the real servers that can be chosen. Their weights are shares of sum.
	reals        []ipvswire.Real
	weights, sum uint32
	// refuses is set if the connection can be refused; the share of that is the rest of sum.
	refuses bool
	// how says in words how the scheduler chooses if the shares mean nothing, because the choice
	// follows a hash or what the scheduler has seen before. Otherwise it is empty.
	how string
}

// scheduling says how a scheduler of IPVS chooses.
type scheduling struct {
	// by completes "the scheduler chooses ...". It is empty if all get their share in turn.
	by string
	// hashes is set if endpoints with weight 0 keep their part of the hash table, so that clients
	// whose hash leads there are refused, unless the virtual server has the flag for a fallback.
	hashes bool
	// limits is set if endpoints with more connections than weight get no more.
	limits bool
}

// schedulings are the schedulers that a virtual server of Sluice may have.
var schedulings = map[string]scheduling{
	"rr":    {},
	"wrr":   {},
	"dh":    {by: "by a hash of the destination, so that all clients get one endpoint", hashes: true},
	"sh":    {by: "by a hash of the client's address", hashes: true},
	"mh":    {by: "by a hash of the client's address"},
	"fo":    {by: "the first endpoint of the highest weight"},
	"lblc":  {by: "the endpoint that the destination had before, unless it is overloaded"},
	"lblcr": {by: "among the endpoints that the destination had before, by their connections"},
	"lc":    {by: "the endpoint with the fewest connections"},
	"nq":    {by: "an idle endpoint, or else the one with the shortest expected delay"},
	"ovf":   {by: "the first endpoint whose connections do not exceed its weight; without one, the connection is rejected", limits: true},
	"sed":   {by: "the endpoint with the shortest expected delay"},
	"twos":  {by: "the less busy of two random endpoints"},
	"wlc":   {by: "the endpoint with the fewest connections for its weight"},
}

// knownFlags are the flags of virtual servers that choiceOf understands.
const knownFlags = ipvswire.Persistent | ipvswire.SchedulerFlag1 | ipvswire.SchedulerFlag2

// choiceOf returns how a virtual server chooses. A real server with weight 0 gets no new
// connection. That includes clients with affinity, because the proxy sets
// net.ipv4.vs.expire_quiescent_template.
func choiceOf(s *ipvsrender.Server) (choice, error) {
	how, known := schedulings[s.Scheduler]
	if !known || s.Flags&^uint32(knownFlags) != 0 || s.FreeBits != 0 {
		return choice{}, fmt.Errorf("virtual server %s: scheduler %q with flags %#x is unknown", frontendText(s), s.Scheduler, s.Flags)
	}
	var c choice
	drain := false
	for _, r := range s.Reals {
		if r.Weight == 0 {
			drain = true
			continue
		}
		if s.Scheduler == "rr" {
			r.Weight = 1 // it ignores weights
		}
		c.reals = append(c.reals, r)
		c.weights += r.Weight
	}
	fallback := s.Flags&ipvswire.SchedulerFlag1 != 0
	c.sum = c.weights
	lost := how.hashes && !fallback
	switch {
	case len(c.reals) == 0:
		c.refuses, c.sum = true, 1
	case how.limits, lost && drain:
		c.refuses, c.how, c.sum = true, how.by, c.weights+1
	case len(c.reals) > 1 || lost: // endpoints that drain may be unknown here
		c.how = how.by
	}
	if c.how != "" && s.Flags&ipvswire.SchedulerFlag2 != 0 {
		c.how += " and port"
	}
	if lost && c.how != "" {
		c.how += "; while an endpoint drains, connections whose hash selects it are rejected"
	}
	return c, nil
}
