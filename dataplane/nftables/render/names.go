// SPDX-License-Identifier: Apache-2.0

package render

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"net/netip"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/nftables/rules"
	"github.com/sluice-proxy/sluice/service"
)

// TableName is kube-proxy's table, one per family. kube-proxy in another mode removes this
// table; in nftables mode it replaces the base chains, which have its
// names. So a switch back to kube-proxy leaves none of Sluice's rules in effect.
const TableName = "kube-proxy"

// TableComment is what nft shows with the table.
const TableComment = "node service proxy: sluice"

// The base chains have kube-proxy's names, so that either proxy takes over from the other:
// kube-proxy recreates all base chains with its names when it starts, and no others. Sluice's
// rejecting chains have the names of kube-proxy's chains that filter by the untranslated destination.
const (
	chainNATPrerouting    = "nat-prerouting"
	chainNATOutput        = "nat-output"
	chainNATPostrouting   = "nat-postrouting"
	ChainRejectPrerouting = "filter-prerouting-pre-dnat"
	ChainRejectOutput     = "filter-output-pre-dnat"
)

// The fixed regular chains have kube-proxy's names, except for those that it does not have.
const (
	chainServices           = "services"
	chainNodePorts          = "node-ports"
	chainNodePortCheck      = "nodeport-endpoints-check"
	chainClusterIPsCheck    = "cluster-ips-check"
	chainClusterIPsOutput   = "cluster-ips-check-output"
	chainFirewallCheck      = "firewall-check"
	chainOutOfRange         = "out-of-range"
	chainNodePortOutOfRange = "nodeport-out-of-range"
	chainPassed             = "passed"
	chainUnallocated        = "unallocated"
	chainMasquerading       = "masquerading"
	chainReject             = "reject-chain"
)

// Services with affinity have their own chains, sets and maps; see affinity.go.
const (
	prefixServiceChain  = "service-"
	prefixLocalChain    = "local-"
	prefixExternalChain = "external-"
	prefixLimited       = "limited-"
	prefixDenying       = "denying-"
	prefixNodePort      = "nodeport-"
	prefixKnownChain    = "known-"
	prefixRememberChain = "remember-"
)

// shards divide the largest map. The kernel lists a set in pieces, and for each piece walks over
// all earlier elements (nft_rhash_walk), so the time to read a set grows with the square of its
// size. The slots of one frontend are in one shard.
const shards = "abcdefgh"

// shardOf returns the shard of a frontend, by its address and port.
func shardOf(f service.Frontend) string {
	sum := uint32(f.Port)
	for _, b := range f.Addr.AsSlice() {
		sum = sum*31 + uint32(b)
	}
	at := sum % uint32(len(shards))
	return shards[at : at+1]
}

// memories divide the set that limits the clients that a node remembers. A Service with too many
// clients fills only one of them. The time to list a set is another reason; see shards.
const memories = "abcd"

// memoryOf returns the name of the set that bounds the clients of a service port with affinity.
func memoryOf(portBase string) string {
	sum := 0
	for _, b := range []byte(portBase) {
		sum += int(b)
	}
	at := sum % len(memories)
	return memorySet(memories[at : at+1]).name
}

// Containers of identities. The container of elements is "@" and the name of their set, as
// nft writes a reference to the set.
const (
	ContainerTable = "table"
	ContainerSet   = "set"
	ContainerChain = "chain"
	elementsOf     = "@"
)

func chainID(name string) dataplane.ID { return dataplane.ID{Container: ContainerChain, Name: name} }
func setID(name string) dataplane.ID   { return dataplane.ID{Container: ContainerSet, Name: name} }

var tableID = dataplane.ID{Container: ContainerTable, Name: TableName}

// SetOf returns the set that a container of elements stands for.
func SetOf(container string) (string, bool) { return strings.CutPrefix(container, elementsOf) }

// ContainerOf returns the container of a set's elements.
func ContainerOf(set string) string {
	if container, shared := containers[set]; shared {
		return container
	}
	return elementsOf + set
}

// HasSlots reports whether a container has slots: endpoints that frontends refer to by number only.
func HasSlots(container string) bool {
	s := setIn[container]
	return s != nil && len(s.data) > 0
}

// IsShared reports whether all Services share a set.
func IsShared(set string) bool { return containers[set] != "" }

// A name is cut so that there is room for prefixes below the kernel's limit of 255.
const (
	baseMax = 225
	cutMark = "..."
)

// portBase names a service port as kube-proxy does in its chains:
// HASH-namespace/name/protocol/port.
func portBase(key service.Key, port *service.PortView) string {
	return hashedName(key.String() + "/" + port.Protocol.String() + "/" + port.Name)
}

// turnsOf identifies a service port in the names of its chains. The comments of elements have its name.
func turnsOf(key service.Key, port *service.PortView) string {
	sum := sha256.Sum256([]byte(portBase(key, port)))
	return base32.StdEncoding.EncodeToString(sum[:])[:16]
}

func hashedName(text string) string {
	sum := sha256.Sum256([]byte(text))
	name := base32.StdEncoding.EncodeToString(sum[:])[:8] + "-" + text
	if len(name) > baseMax {
		name = name[:baseMax-len(cutMark)] + cutMark
	}
	return name
}

// dialect is what differs between the families in rules and sets.
type dialect struct {
	*rules.Header
	// addrType is nft's number of the type of an address.
	addrType uint32
	// header, saddrField and daddrField are nft's numbers for "typeof ip daddr".
	header, saddrField, daddrField uint32
	loopback                       netip.Prefix
}

var dialects = service.PerFamily[*dialect]{
	service.IPv4: {
		Header:   &rules.Headers[service.IPv4],
		addrType: 7, header: 12, saddrField: 11, daddrField: 12, loopback: netip.MustParsePrefix("127.0.0.0/8"),
	},
	service.IPv6: {
		Header:   &rules.Headers[service.IPv6],
		addrType: 8, header: 13, saddrField: 8, daddrField: 9, loopback: netip.MustParsePrefix("::1/128"),
	},
}

// role is how the elements of a shared set relate to a frontend. The zero value means none: a
// shared set without a role fails a test.
type role uint8

const (
	// ofFrontend: the key of an element begins with a frontend, and the element belongs to the Service
	// that has it.
	ofFrontend role = iota + 1
	// shared: the elements are facts about pods and addresses, regardless of the Services that claim them.
	shared
)

// setIn holds the shared sets by the containers of their elements.
var setIn = map[string]*set{}

// transportBytes is the room of protocol and port in a key.
const transportBytes = 2 * registerBytes

// Naming reads the identities of this backend's elements. It allocates nothing.
type Naming struct{}

// Naming implements dataplane.Renderer.
func (r *Renderer) Naming() dataplane.Naming { return Naming{} }

// Frontend implements dataplane.Naming. The key of a slot, and each end of a source range, begins with
// the frontend.
func (Naming) Frontend(id dataplane.ID) (f service.Frontend, ok bool) {
	s := setIn[id.Container]
	if s == nil || s.role != ofFrontend {
		return f, false
	}
	length := len(id.Name)
	switch {
	case s.ranges && s.key[0] != fieldDaddr:
		length = transportBytes
	case s.ranges:
		// Both ends have the address of the frontend and one of a client; protocol and
		// port stand between.
		length = (length/2-transportBytes)/2 + transportBytes
	case s.key[len(s.key)-1] == fieldSlot:
		length -= registerBytes
	}
	at := length - transportBytes
	if at < 0 || length > len(id.Name) {
		return f, false
	}
	if ok = at == 0; s.key[0] == fieldDaddr { // a node port has no address
		f.Addr, ok = netip.AddrFromSlice([]byte(id.Name[:at]))
	}
	if !ok {
		return service.Frontend{}, false
	}
	port := id.Name[at+registerBytes : length]
	f.Port = uint16(port[0])<<8 | uint16(port[1])
	if f.Protocol, ok = service.ProtocolOf(id.Name[at]); !ok {
		return service.Frontend{}, false
	}
	return f, true
}

var frontendsContainer, nodePortsContainer = ContainerOf(mapFrontends.name), ContainerOf(mapNodePorts.name)

// Stage implements dataplane.Naming.
func (Naming) Stage(id dataplane.ID) dataplane.Stage {
	switch {
	case id.Container == ContainerChain && (id.Name == chainNATPrerouting || id.Name == chainNATOutput):
		return dataplane.StageEntry
	case id.Container == ContainerChain && id.Name == chainServices:
		return dataplane.StageDispatch
	case id.Container == frontendsContainer || id.Container == nodePortsContainer:
		return dataplane.StageFrontend
	}
	return dataplane.StageNone
}

// Sends implements dataplane.Naming. If an element translates packets, its data is an address and a port. The body then
// begins with the header of the data, the header of the value, and the value.
func (Naming) Sends(o *dataplane.Object, each func(netip.AddrPort)) {
	const head = 8
	b := o.Body
	if o.Kind != dataplane.Element || len(b) < head || kindAt(b, 0) != unix.NFTA_SET_ELEM_DATA || kindAt(b, 4) != unix.NFTA_DATA_VALUE {
		return
	}
	addrBytes := int(sizeAt(b, 4)) - head/2 - registerBytes
	if addrBytes <= 0 || len(b) < head+addrBytes+registerBytes {
		return
	}
	if addr, ok := netip.AddrFromSlice([]byte(b[head : head+addrBytes])); ok {
		port := b[head+addrBytes:]
		each(netip.AddrPortFrom(addr, uint16(port[0])<<8|uint16(port[1])))
	}
}

// sizeAt and kindAt read the header of an attribute.
func sizeAt(b string, at int) uint16 { return binary.NativeEndian.Uint16([]byte(b[at : at+2])) }
func kindAt(b string, at int) uint16 { return sizeAt(b, at+2) }
