// SPDX-License-Identifier: Apache-2.0

package render

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/slots"
	"github.com/sluice-proxy/sluice/service"
)

// class is what the frontends that share a chain have in common: the number of slots in their
// tables, how a slot is chosen, and the policy. The class's chain exists while a Service claims it.
type class struct {
	kind classKind
	// nodePort is set if the frontend is a node port, on any address.
	nodePort       bool
	cluster, local pool
	// by chooses a slot.
	by service.Balancing
	// turns identifies the service port whose turns the chain counts. It is empty unless by is RoundRobin: the
	// turns of a port must not depend on the connections to others.
	turns string
	// shard selects the map of the Cluster endpoints. It is empty for node ports and if
	// there are no such endpoints.
	shard string
	// limited is set if the chain may refuse a packet: source ranges apply to the frontend, or the chain
	// serves only clients of this node.
	limited bool
	// denying is set if the chain drops denied sources. Such a chain is limited.
	denying bool
	// detect is set for classes that treat local pods specially.
	detect service.LocalDetector
}

// pool is what tables have in common: the number of slots, 0 for none, and whether each slot has an endpoint.
type pool struct {
	size int
	full bool
}

type classKind uint8

const (
	// classCluster picks among the Cluster endpoints, classLocal among the Local ones.
	// Marked packets are masqueraded.
	classCluster classKind = iota
	classLocal
	// classExternal masquerades and picks among the Cluster endpoints.
	classExternal
	// classExternalLocal picks among the Local endpoints, except for pods and processes of
	// this node, which get the Cluster endpoints.
	classExternalLocal
)

// name returns the name of the class's chain. It determines the rules while a process runs: Services that share a chain
// want the same rules, also while facts change.
func (c class) name() string {
	prefix := ""
	if c.nodePort {
		prefix = prefixNodePort
	}
	if c.limited {
		prefix += prefixLimited
	}
	if c.denying {
		prefix += prefixDenying
	}
	cluster, local := c.choice(c.cluster), c.choice(c.local)
	switch c.kind {
	case classCluster:
		return prefix + "cluster-" + cluster + c.shard
	case classLocal:
		return prefix + "local-" + local
	case classExternal:
		return prefix + prefixExternalChain + cluster + c.shard
	default:
		return prefix + prefixExternalChain + cluster + c.shard + "-" + c.localPods() + "-" + local
	}
}

// localPods returns the part of the chain's name that identifies the detection of local pods. It has the same length
// without a detection, because elements contain names of chains.
func (c class) localPods() string {
	const word = "local"
	if !c.detect.Configured() {
		return word
	}
	sum := sha256.Sum256([]byte(c.detect.CIDR.String() + " " + c.detect.Interface))
	return hex.EncodeToString(sum[:])[:len(word)]
}

// choice returns the part of the chain's name that identifies how it chooses from a table.
func (c class) choice(from pool) string {
	switch size := strconv.Itoa(from.size); {
	case c.turns != "":
		// The size is needed: slots and chain may change in different transactions, and a chain must find all its slots.
		return "turns-" + c.turns + "-" + size
	case c.by.Hashes():
		return strings.ToLower(c.by.String()) + "-" + size
	case from.full:
		return "full-" + size
	default:
		return size
	}
}

// poolClasses returns the classes whose chains choose the endpoint for an external class.
func (c class) poolClasses() (cluster, local class) {
	cluster, local = c, c
	cluster.kind, cluster.local, cluster.limited, cluster.denying, cluster.detect = classCluster, pool{}, false, false, service.LocalDetector{}
	local = cluster
	local.kind, local.cluster, local.local, local.shard = classLocal, pool{}, c.local, ""
	return cluster, local
}

// render returns the class's chain, followed by those that it leads to.
func (c class) render(r *Renderer) []dataplane.Object {
	switch c.kind {
	case classCluster, classLocal:
		return []dataplane.Object{c.pickChain(r).object()}
	}
	cluster, local := c.poolClasses()
	out := newChain(c.name())
	var others []dataplane.Object
	targets := externalTargets{policyLocal: c.kind == classExternalLocal, nodePort: c.nodePort, limited: c.limited, denying: c.denying}
	if c.cluster.size > 0 {
		targets.cluster = cluster.name()
		others = append(others, r.class(cluster)...)
	}
	if c.local.size > 0 {
		targets.local = local.name()
		others = append(others, r.class(local)...)
	}
	targets.fill(out, r, c.detect)
	return append([]dataplane.Object{out.object()}, others...)
}

// pickChain returns a chain that chooses a slot. If some slots have no endpoint, it tries random slots, and finally
// slot 0; see package slots.
func (c class) pickChain(r *Renderer) *chain {
	from, name, key := c.cluster, r.maps.clusterOf(c.shard), frontendKey
	if c.nodePort {
		key = nodePortKey
	}
	switch {
	case c.kind == classLocal && c.nodePort:
		from, name = c.local, r.maps.nodePortLocal.name
	case c.kind == classLocal:
		from, name = c.local, r.maps.local.name
	}
	out := newChain(c.name())
	if from.full {
		return out.add(newRule(r.d).fields(key).numbered(from.size, c.by, r.seed).dnatBy(name))
	}
	for _, modulus := range moduli(from.size) {
		out.add(newRule(r.d).fields(key).numgen(modulus).dnatBy(name))
	}
	return out
}

// moduli returns the bounds of the random numbers that a chain draws for a table, one after
// the other.
func moduli(size int) []int {
	var drawn []int
	for range slots.Tries(size) {
		drawn = append(drawn, size)
	}
	if !slots.AlwaysFull(size) {
		drawn = append(drawn, 1)
	}
	return drawn
}

// externalTargets are the chains to which external traffic continues.
type externalTargets struct {
	policyLocal, nodePort bool
	// limited and denying are as in class. The element that leads to a limited chain also counts the packets that the
	// chain refuses, so another element counts those that continue.
	limited, denying bool
	// cluster and local are empty if there is no endpoint.
	cluster, local string
}

// fill adds the rules for external traffic to a chain. Packets that they do not serve are rejected later; see
// Renderer.rejecting.
func (t externalTargets) fill(out *chain, r *Renderer, detect service.LocalDetector) {
	d := r.d
	switch {
	case t.denying && t.nodePort:
		out.add(newRule(d).fields(nodePortSourceKey).in(setNodePortDenied.name, false).goTo(chainNodePortOutOfRange))
	case t.denying:
		out.add(newRule(d).fields(sourceKey).in(setDenied.name, false).goTo(chainOutOfRange))
	}
	if t.limited && !t.nodePort {
		out.add(newRule(d).jump(chainFirewallCheck))
	}
	next := t.local
	switch {
	case !t.policyLocal:
		out.add(newRule(d).mark(r.mark).says("masquerade"))
		next = t.cluster
	case t.cluster != "":
		if localPods(d, detect, false) != nil {
			t.goOn(out, func() *rule { return localPods(d, detect, false) }, t.cluster, "short-circuit pod traffic")
		}
		local := func() *rule { return newRule(d).local(fieldSaddr, false) }
		out.add(local().mark(r.mark).says("masquerade local traffic"))
		t.goOn(out, local, t.cluster, "short-circuit local traffic")
	}
	if next != "" {
		t.goOn(out, func() *rule { return newRule(d) }, next, "")
	}
}

// goOn counts the packet if the chain is limited, and goes to a chain that serves every packet.
func (t externalTargets) goOn(out *chain, begin func() *rule, to, comment string) {
	admitted, key := t.admitted()
	if t.limited {
		out.add(begin().fields(key).in(admitted, false))
	}
	out.add(begin().goTo(to).says(comment))
}

// admitted returns the set that counts for a limited chain, and its key.
func (t externalTargets) admitted() (set string, key []field) {
	if t.nodePort {
		return setNodePortAdmitted.name, nodePortKey
	}
	return setAdmitted.name, frontendKey
}

// localPods begins a rule for packets of local pods, or of all others if negated. It
// returns nil if there are none.
func localPods(d *dialect, detect service.LocalDetector, negated bool) *rule {
	r := newRule(d)
	prefix, any := cutPlus(detect.Interface)
	switch {
	case detect.CIDR.IsValid() && detect.CIDR.Bits() > 0:
		return r.within(fieldSaddr, detect.CIDR, negated)
	case detect.Interface != "" && !(any && prefix == ""):
		return r.from(detect.Interface, negated)
	case detect.Configured() != negated:
		return r // everything is local
	default:
		return nil
	}
}
