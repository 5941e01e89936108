// SPDX-License-Identifier: Apache-2.0

package render

import (
	"crypto/sha256"
	"encoding/base32"
	"net/netip"
	"strings"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/iptables/tree"
	"github.com/sluice-proxy/sluice/service"
)

// Chains with the same names as kube-proxy's: people, scripts and other agents look for them, and
// kube-proxy takes them over if it is started again.
const (
	ChainServices      = "KUBE-SERVICES"
	ChainExternal      = "KUBE-EXTERNAL-SERVICES"
	ChainNodePorts     = "KUBE-NODEPORTS"
	ChainPostrouting   = "KUBE-POSTROUTING"
	ChainMarkMasq      = "KUBE-MARK-MASQ"
	ChainForward       = "KUBE-FORWARD"
	ChainProxyFirewall = "KUBE-PROXY-FIREWALL"
	ChainFirewall      = "KUBE-FIREWALL"
	ChainCanary        = "KUBE-PROXY-CANARY"
)

// Chains that only Sluice has. kube-proxy removes unknown chains with these prefixes from nat.
const (
	// chainHairpin (nat) marks connections of endpoints to themselves, to be masqueraded.
	chainHairpin = "KUBE-SVC-HAIRPIN"
	// chainExternalNodePorts (filter) rejects node ports without endpoints.
	chainExternalNodePorts = "KUBE-EXT-NODEPORTS"
)

// The chains of a service port are named by a prefix and 16 characters of a hash.
const (
	// prefixCluster balances over the Cluster endpoints.
	prefixCluster = "KUBE-SVC-"
	// prefixLocal balances over the Local endpoints.
	prefixLocal = "KUBE-SVL-"
	// prefixExternal receives external traffic.
	prefixExternal = "KUBE-EXT-"
	// prefixSourceRanges admits packets from the allowed source ranges.
	prefixSourceRanges = "KUBE-FW-"
	// prefixEndpoint remembers the client of one endpoint (ClientIP affinity).
	prefixEndpoint = "KUBE-SEP-"
)

// portHash names the chains of a service port. subject is service.Key.PortString. Like
// kube-proxy, it joins the two without a separator.
func portHash(subject string, protocol service.Protocol) string {
	var b [256]byte
	return hash(append(append(b[:0], subject...), protocol.String()...))
}

// endpointHash names the chain of an endpoint of a service port.
func endpointHash(subject string, protocol service.Protocol, endpoint netip.AddrPort) string {
	var b [320]byte
	text := append(append(b[:0], subject...), protocol.String()...)
	return hash(endpoint.AppendTo(text))
}

// hashBytes of a SHA-256 sum make hashChars characters of base32.
const (
	hashBytes = 10
	hashChars = 16
)

func hash(text []byte) string {
	sum := sha256.Sum256(text)
	var b [hashChars]byte
	base32.StdEncoding.Encode(b[:], sum[:hashBytes])
	return string(b[:])
}

// ChainID returns the identity of a chain.
func ChainID(table Table, name string) dataplane.ID {
	return dataplane.ID{Container: string(table), Name: name}
}

func natChain(name string) dataplane.ID { return ChainID(NAT, name) }

// The dispatch containers: the chains that Services share.
var (
	// natServices translates by destination.
	natServices = newContainer(NAT, ChainServices, 'S', tree.ByDestination)
	// natNodePorts translates by node port.
	natNodePorts = newContainer(NAT, ChainNodePorts, 'N', tree.ByPort)
	// natHairpin marks connections of endpoints to themselves.
	natHairpin = newContainer(NAT, chainHairpin, 'H', tree.BySource)
	// filterServices rejects at ClusterIPs without endpoints.
	filterServices = newGuarded(ChainServices, 'R', tree.ByDestination)
	// filterExternal rejects at external IPs and load balancer VIPs.
	filterExternal = newGuarded(ChainExternal, 'X', tree.ByDestination)
	// filterNodePorts rejects at node ports.
	filterNodePorts = newGuarded(chainExternalNodePorts, 'P', tree.ByPort)
	// filterFirewall drops packets that the source ranges did not admit.
	filterFirewall = newGuarded(ChainProxyFirewall, 'F', tree.ByDestination)
	// filterHealth accepts health checks.
	filterHealth = newGuarded(ChainNodePorts, 'C', tree.ByPort)
)

// newGuarded returns a guarded container of filter: every packet of state NEW passes it, but few match
// one of its elements.
func newGuarded(chain string, letter byte, shape tree.Shape) tree.Container {
	c := newContainer(Filter, chain, letter, shape)
	c.Guarded = true
	return c
}

func newContainer(table Table, chain string, letter byte, shape tree.Shape) tree.Container {
	return tree.Container{Table: string(table), Chain: chain, Letter: letter, Shape: shape}
}

// Containers are the roots of the trees of iptables mode.
var Containers = []tree.Container{
	natServices, natNodePorts, natHairpin,
	filterServices, filterExternal, filterNodePorts, filterFirewall, filterHealth,
}

// NewLayout returns a layout that folds this package's elements into chains.
func NewLayout(family service.Family) *tree.Layout { return tree.New(family, Containers) }

// frontendShapes has the containers whose elements belong to frontends, with their shapes. Elements of
// the other containers belong to several Services.
var frontendShapes = map[string]tree.Shape{
	natServices.Name():     natServices.Shape,
	natNodePorts.Name():    natNodePorts.Shape,
	filterServices.Name():  filterServices.Shape,
	filterExternal.Name():  filterExternal.Shape,
	filterNodePorts.Name(): filterNodePorts.Shape,
	filterFirewall.Name():  filterFirewall.Shape,
}

// Naming reads the identities of this backend's elements. It allocates nothing.
type Naming struct{}

// Naming implements dataplane.Renderer.
func (r *Renderer) Naming() dataplane.Naming { return Naming{} }

// Frontend implements dataplane.Naming.
func (Naming) Frontend(id dataplane.ID) (service.Frontend, bool) {
	shape, known := frontendShapes[id.Container]
	if !known {
		return service.Frontend{}, false
	}
	key, err := tree.DecodeKey(id.Name)
	if err != nil || !key.HasPort || key.Addr.IsValid() != (shape == tree.ByDestination) {
		return service.Frontend{}, false
	}
	return service.Frontend{Addr: key.Addr, Port: key.Port, Protocol: key.Protocol}, true
}

// Stage implements dataplane.Naming.
func (Naming) Stage(id dataplane.ID) dataplane.Stage {
	switch {
	case id.Container == string(NAT) && id.Name == ChainServices:
		return dataplane.StageDispatch
	case id.Container == string(NAT):
		return dataplane.StageFrontend
	}
	if strings.HasPrefix(id.Container, string(NAT)+"/") { // a hook; chains, which are many, are not parsed
		if hook, err := ParseHook(id); err == nil && hook.Target == ChainServices {
			return dataplane.StageEntry
		}
	}
	return dataplane.StageNone
}

// Sends implements dataplane.Naming.
func (Naming) Sends(o *dataplane.Object, each func(netip.AddrPort)) {
	if o.ID.Container != string(NAT) {
		return
	}
	for rest, found := o.Body, true; ; {
		if _, rest, found = strings.Cut(rest, toDestination); !found {
			return
		}
		end := strings.IndexAny(rest, " \n")
		if end < 0 {
			end = len(rest)
		}
		if at, err := netip.ParseAddrPort(rest[:end]); err == nil {
			each(at)
		}
	}
}
