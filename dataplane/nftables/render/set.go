// SPDX-License-Identifier: Apache-2.0

package render

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/internal/netlink"
	"github.com/sluice-proxy/sluice/service"
)

// set is the definition of a set or a map.
type set struct {
	name string
	key  []field
	// data makes it a map to endpoints, verdict a map to verdicts.
	data    []field
	verdict bool
	// ranges lets the last field of a key be a range.
	ranges bool
	// remembers is the largest number of elements of a set to which rules add clients, for a time. It is 0
	// for other sets.
	remembers uint32
	// counts gives each element a counter of the packets that find it (Linux 5.7).
	counts bool
	// role is how the elements of a shared set relate to a frontend.
	role role
}

// clientsMax is how many clients are remembered for a list of endpoints, and how many for all lists
// that share one of the sets setMemories. Further clients have no affinity. The kernel uses the lower
// 16 bits as a hint for its initial allocation.
const clientsMax = 1 << 18

// flagConcat is NFT_SET_CONCAT: each field is a separate range (Linux 5.6).
const flagConcat = 0x80

// descConcat is NFTA_SET_DESC_CONCAT (Linux 5.6).
const descConcat = 2

// setFieldLen is NFTA_SET_FIELD_LEN (Linux 5.6).
const setFieldLen = 1

// setExpr is NFTA_SET_EXPR (Linux 5.7).
const setExpr = 17

var (
	frontendKey       = []field{fieldDaddr, fieldProtocol, fieldPort}
	nodePortKey       = []field{fieldProtocol, fieldPort}
	slotKey           = []field{fieldDaddr, fieldProtocol, fieldPort, fieldSlot}
	nodeSlotKey       = []field{fieldProtocol, fieldPort, fieldSlot}
	sourceKey         = []field{fieldDaddr, fieldProtocol, fieldPort, fieldSaddr}
	nodePortSourceKey = []field{fieldProtocol, fieldPort, fieldSaddr}
	hairpinKey        = []field{fieldSaddr, fieldDaddr, fieldProtocol, fieldPort}
	endpointOf        = []field{fieldDaddr, fieldPort}
)

// The shared sets and maps, with elements of all Services.
var (
	mapFrontends          = set{key: frontendKey, verdict: true, counts: true, role: ofFrontend}.named("frontends")
	mapNodePorts          = set{key: nodePortKey, verdict: true, counts: true, role: ofFrontend}.named("nodeports")
	mapCluster            = set{key: slotKey, data: endpointOf, role: ofFrontend}.named("cluster-endpoints")
	mapLocal              = set{key: slotKey, data: endpointOf, role: ofFrontend}.named("local-endpoints")
	mapNodePortCluster    = set{key: nodeSlotKey, data: endpointOf, role: ofFrontend}.named("nodeport-cluster-endpoints")
	mapNodePortLocal      = set{key: nodeSlotKey, data: endpointOf, role: ofFrontend}.named("nodeport-local-endpoints")
	setAdmitted           = set{key: frontendKey, counts: true, role: ofFrontend}.named("admitted")
	setNodePortAdmitted   = set{key: nodePortKey, counts: true, role: ofFrontend}.named("nodeport-admitted")
	setNoEndpoints        = set{key: frontendKey, counts: true, role: ofFrontend}.named("no-endpoints")
	setNoLocal            = set{key: frontendKey, counts: true, role: ofFrontend}.named("no-local-endpoints")
	setNodePortNone       = set{key: nodePortKey, counts: true, role: ofFrontend}.named("nodeport-no-endpoints")
	setNodePortNoLocal    = set{key: nodePortKey, counts: true, role: ofFrontend}.named("nodeport-no-local-endpoints")
	setOutOfRange         = set{key: frontendKey, counts: true, role: ofFrontend}.named("out-of-range")
	setNodePortOutOfRange = set{key: nodePortKey, counts: true, role: ofFrontend}.named("nodeport-out-of-range")
	setPassed             = set{key: frontendKey, role: ofFrontend}.named("passed")
	setClusterIPs         = set{key: []field{fieldDaddr}, role: shared}.named("active-cluster-ips")
	setNodePortAddresses  = set{key: []field{fieldDaddr}, role: shared}.named("nodeport-addresses")
	setHairpins           = set{key: hairpinKey, role: shared}.named("hairpins")
	setFirewalled         = set{key: frontendKey, role: ofFrontend}.named("firewalled")
	setAllowed            = set{key: sourceKey, ranges: true, role: ofFrontend}.named("allowed-sources")
	setDenied             = set{key: sourceKey, ranges: true, role: ofFrontend}.named("denied-sources")
	setNodePortDenied     = set{key: nodePortSourceKey, ranges: true, role: ofFrontend}.named("nodeport-denied-sources")
	// setMemories limit the clients that a node remembers. They have an element for each client of
	// each of their frontends with affinity. If a set is full, a new client is not remembered. The key is
	// the client and the frontend: each entry of a map of clients is also in one of these sets.
	setMemories = set{key: hairpinKey, remembers: clientsMax, role: shared}.named("remembered")
)

// endpointMaps are the maps from which rules choose an endpoint.
type endpointMaps struct{ cluster, local, nodePortCluster, nodePortLocal, targets set }

// plainMaps are the maps of a node that does not count by endpoint, countingMaps those of a node that does.
// Their definitions differ, and therefore their names.
var (
	plainMaps    = &endpointMaps{mapCluster, mapLocal, mapNodePortCluster, mapNodePortLocal, targetsMaps}
	countingMaps = &endpointMaps{
		mapCluster.counting("cluster-endpoints"), mapLocal.counting("local-endpoints"),
		mapNodePortCluster.counting("nodeport-cluster-endpoints"), mapNodePortLocal.counting("nodeport-local-endpoints"),
		targetsMaps.counting("targets"),
	}
)

// shared returns the maps that all Services share.
func (m *endpointMaps) shared() []set {
	all := []set{m.local, m.nodePortCluster, m.nodePortLocal}
	for i := range len(shards) {
		all = append(all, m.cluster.of(shards[i:i+1]))
	}
	return all
}

// clusterOf returns the name of a shard's map. Node ports have one map without shards.
func (m *endpointMaps) clusterOf(shard string) string {
	if shard == "" {
		return m.nodePortCluster.name
	}
	return m.cluster.of(shard).name
}

// nodeSets are the shared sets that every node has. setMemories is divided by memories.
var nodeSets = func() []set {
	all := []set{
		mapFrontends, mapNodePorts, setAdmitted, setNodePortAdmitted, setNoEndpoints, setNoLocal,
		setNodePortNone, setNodePortNoLocal, setOutOfRange, setClusterIPs, setNodePortAddresses, setHairpins,
		setFirewalled, setAllowed, setDenied, setNodePortDenied, setNodePortOutOfRange, setPassed,
	}
	for i := range len(memories) {
		all = append(all, memorySet(memories[i:i+1]))
	}
	return all
}()

// sharedSets are all shared sets. A node has either plainMaps or countingMaps.
var sharedSets = slices.Concat(nodeSets, plainMaps.shared(), countingMaps.shared())

func init() {
	for i, s := range sharedSets {
		containers[s.name] = elementsOf + s.name
		setIn[containers[s.name]] = &sharedSets[i]
		setLinks[s.name] = dataplane.LinkTo(setID(s.name))
	}
}

// The containers of elements and the references of their elements, allocated once.
var (
	containers = map[string]string{}
	setLinks   = map[string]*dataplane.Links{}
)

// The sets of a service port with affinity, whose names begin with these; see affinity.go. Each
// element of clients-… has a timeout, so that a changed timeout does not redefine the map.
var (
	clientsMaps = set{key: []field{fieldSaddr}, data: []field{fieldDaddr}, remembers: clientsMax}.named("clients")
	targetsMaps = set{key: []field{fieldDaddr}, data: endpointOf}.named("targets")
	slotsMaps   = set{key: []field{fieldSlot}, data: []field{fieldDaddr}}.named("slots")
	liveSets    = set{key: []field{fieldDaddr}}.named("live")

	affinitySets = []set{clientsMaps, targetsMaps, countingMaps.targets, slotsMaps, liveSets}
)

func memorySet(memory string) set { return setMemories.of(memory) }

func clientsMap(chain string) set { return clientsMaps.of(chain) }
func slotsMap(chain string) set   { return slotsMaps.of(chain) }
func liveSet(chain string) set    { return liveSets.of(chain) }

// The kernel cannot redefine a set. A name therefore contains a digest of the definition in both
// families: if another release defines a set differently, that is another set. The plan adds the new
// set, makes the rules refer to it and deletes the old one, as it does with any object. kube-proxy
// uses no such names.

// named returns the set with a name that begins with a word and the digest of its definition. SetName
// returns that name.
func (s set) named(word string) set {
	s = s.digested(word)
	names[word] = s.name
	return s
}

// counting returns a set whose elements have counters, with the digest of its definition in the name.
func (s set) counting(word string) set {
	s.counts = true
	return s.digested(word)
}

func (s set) digested(word string) set {
	const digestBytes = 3
	definitions := append(s.body(dialects[service.IPv4]), s.body(dialects[service.IPv6])...)
	s.name = fmt.Sprintf("%s-%x", word, sha256.Sum256(definitions))[:len(word)+1+2*digestBytes]
	return s
}

// of returns a set with the same definition, and with rest at the end of its name.
func (s set) of(rest string) set {
	s.name += "-" + rest
	return s
}

// SetName returns the name of a set or map by the word with which it begins, such as "frontends". If
// several sets have the same definition, it returns the beginning of all their names.
func SetName(word string) string { return names[word] }

// names are the results of SetName.
var names = map[string]string{}

// object returns the set's object.
func (s set) object(d *dialect) dataplane.Object {
	o := ownedObject(setID(s.name), s.body(d))
	o.Links = dataplane.LinkTo(tableID)
	return o
}

// body returns the definition as attributes of a set, in ascending order.
func (s set) body(d *dialect) []byte {
	var b []byte
	if flags := s.flags(); flags != 0 {
		b = netlink.AppendUint32(b, unix.NFTA_SET_FLAGS, flags)
	}
	b = netlink.AppendUint32(b, unix.NFTA_SET_KEY_TYPE, nftType(d, s.key))
	b = netlink.AppendUint32(b, unix.NFTA_SET_KEY_LEN, uint32(keyBytes(d, s.key)))
	switch {
	case s.verdict:
		b = netlink.AppendUint32(b, unix.NFTA_SET_DATA_TYPE, unix.NFT_DATA_VERDICT)
	case s.data != nil:
		b = netlink.AppendUint32(b, unix.NFTA_SET_DATA_TYPE, nftType(d, s.data))
		b = netlink.AppendUint32(b, unix.NFTA_SET_DATA_LEN, uint32(keyBytes(d, s.data)))
	}
	if s.ranges || s.remembers > 0 {
		mark := 0
		b, mark = netlink.Nest(b, unix.NFTA_SET_DESC)
		b = s.description(b, d)
		b = netlink.End(b, mark)
	}
	b = netlink.AppendBytes(b, unix.NFTA_SET_USERDATA, s.userData(d))
	if s.counts {
		b = appendCounter(b)
	}
	return b
}

// appendCounter adds the counter expression; the kernel gives each element a copy.
func appendCounter(b []byte) []byte {
	b, mark := netlink.Nest(b, setExpr)
	b = netlink.AppendText(b, unix.NFTA_EXPR_NAME, "counter")
	b, data := netlink.Nest(b, unix.NFTA_EXPR_DATA)
	return netlink.End(netlink.End(b, data), mark)
}

func (s set) flags() uint32 {
	flags := uint32(0)
	if s.verdict || s.data != nil {
		flags |= unix.NFT_SET_MAP
	}
	if s.ranges {
		flags |= unix.NFT_SET_INTERVAL | flagConcat
	}
	if s.remembers > 0 {
		flags |= unix.NFT_SET_TIMEOUT | unix.NFT_SET_EVAL
	}
	return flags
}

// description adds the attributes by which the kernel chooses the set's algorithm.
func (s set) description(b []byte, d *dialect) []byte {
	if s.remembers > 0 {
		return netlink.AppendUint32(b, unix.NFTA_SET_DESC_SIZE, s.remembers)
	}
	mark := 0
	b, mark = netlink.Nest(b, descConcat)
	for _, f := range s.key {
		element := 0
		b, element = netlink.Nest(b, unix.NFTA_LIST_ELEM)
		b = netlink.AppendUint32(b, setFieldLen, uint32(unpadded(d, f)))
		b = netlink.End(b, element)
	}
	return netlink.End(b, mark)
}

// unpadded returns the size of a field without padding.
func unpadded(d *dialect, f field) int {
	switch f {
	case fieldProtocol:
		return 1
	case fieldPort:
		return 2
	default:
		return f.bytes(d)
	}
}

// userData returns the data that nft 1.0.6 stores with such a set and needs to list it. A map of verdicts
// has no expressions there, because nft 0.9.8 would crash on them with any command.
func (s set) userData(d *dialect) []byte {
	const (
		keyByteOrder, dataByteOrder = 0, 1
		keyTypeof, dataTypeof       = 3, 4
		dataInterval                = 6
		hostOrder, networkOrder     = 1, 2
		concatenation               = 13
	)
	orderOf := func(fields []field) uint32 {
		switch {
		case len(fields) != 1:
			return 0 // none for a concatenation, nor for a verdict
		case fields[0] == fieldSlot:
			return hostOrder
		default:
			return networkOrder
		}
	}
	b := udataUint32(nil, keyByteOrder, orderOf(s.key))
	if s.verdict {
		b = udataUint32(b, dataByteOrder, 0)
		b = udata(b, keyTypeof, typeofNode(concatenation, nil))
		return udataUint32(b, dataInterval, 0)
	}
	if s.data == nil {
		if len(s.key) > 1 {
			b = udata(b, keyTypeof, typeofNode(concatenation, nil))
		}
		return b
	}
	b = udataUint32(b, dataByteOrder, orderOf(s.data))
	b = udata(b, keyTypeof, typeofFields(d, s.key))
	b = udata(b, dataTypeof, typeofFields(d, s.data))
	return udataUint32(b, dataInterval, 0)
}

// definition returns the set with a name.
func definition(name string) (set, error) {
	for _, s := range sharedSets {
		if s.name == name {
			return s, nil
		}
	}
	for _, s := range affinitySets {
		if rest, ok := strings.CutPrefix(name, s.name+"-"); ok {
			return s.of(rest), nil
		}
	}
	return set{}, fmt.Errorf("%q is not a set of Sluice", name)
}

// FoundSet returns the object of a set in the kernel. One of Sluice's names identifies the definition:
// another kernel may describe the set in another form, and each release of nft that loads a set writes
// different user data. A set with any other name is never desired.
func FoundSet(family service.Family, name string) dataplane.Object {
	s, err := definition(name)
	if err != nil {
		return ownedObject(setID(name), nil)
	}
	return ownedObject(setID(name), s.body(dialects[family]))
}

// HasElements reports whether a set's elements are objects. Those that rules add are not.
func HasElements(set string) bool {
	s, err := definition(set)
	return err == nil && s.remembers == 0
}

func ownedObject(id dataplane.ID, body []byte) dataplane.Object {
	return dataplane.Object{ID: id, Kind: dataplane.Owned, Body: string(body)}
}

// field is a part of a set's key, or of a map's data.
type field uint8

const (
	fieldDaddr field = iota
	fieldSaddr
	fieldProtocol // of the transport layer, 1 byte
	fieldPort     // destination port, network byte order
	fieldSlot     // a random number, host byte order
)

// registerBytes is the unit of the kernel's registers. Fields are padded to it.
const registerBytes = 4

// bytes returns the field's size in a key.
func (f field) bytes(d *dialect) int {
	if f == fieldDaddr || f == fieldSaddr {
		return d.AddrBytes
	}
	return registerBytes
}

// typeMark is nft's number for the type of packet marks, which a slot is given. The kernel ignores it. An
// integer would have no implied size, and nft 0.9.8 aborts when it sorts keys that end in one. Later
// releases of nft use the user data instead.
const typeMark = 19

// keyBytes returns the size of a key of several fields.
func keyBytes(d *dialect, fields []field) int {
	size := 0
	for _, f := range fields {
		size += f.bytes(d)
	}
	return size
}

// nftType packs nft's numbers for the types of several fields as nft does, 6 bits each.
func nftType(d *dialect, fields []field) uint32 {
	types := [...]uint32{fieldDaddr: d.addrType, fieldSaddr: d.addrType, fieldProtocol: 12, fieldPort: 13, fieldSlot: typeMark}
	packed := uint32(0)
	for _, f := range fields {
		packed = packed<<6 | types[f]
	}
	return packed
}

// The parts of keys and data, padded as in the kernel's registers.

func appendAddr(b []byte, a netip.Addr) []byte {
	if a.Is4() {
		four := a.As4()
		return append(b, four[:]...)
	}
	sixteen := a.As16()
	return append(b, sixteen[:]...)
}

func appendProtocol(b []byte, number uint8) []byte { return append(b, number, 0, 0, 0) }

func appendPort(b []byte, port uint16) []byte {
	return append(binary.BigEndian.AppendUint16(b, port), 0, 0)
}

func appendSlot(b []byte, slot int) []byte {
	return binary.NativeEndian.AppendUint32(b, uint32(slot))
}

// typeofExpr returns nft 1.0.6's description of one field in a set's user data, with which it
// can print "typeof ip daddr . meta l4proto". The kernel ignores it. The numbers are nft's
// for expression types, headers and header fields.
func (f field) typeofExpr(d *dialect) []byte {
	const (
		payload, meta, numgen = 7, 9, 23
		transportHeader       = 11
		transportPort         = 2
		random, anyModulus    = 1, 16
	)
	switch f {
	case fieldProtocol:
		return typeofNode(meta, udataUint32(nil, 0, unix.NFT_META_L4PROTO))
	case fieldPort:
		return typeofNode(payload, udataUint32(udataUint32(nil, 0, transportHeader), 1, transportPort))
	case fieldSlot:
		return typeofNode(numgen, udataUint32(udataUint32(udataUint32(nil, 0, random), 1, anyModulus), 2, 0))
	case fieldSaddr:
		return typeofNode(payload, udataUint32(udataUint32(nil, 0, d.header), 1, d.saddrField))
	default:
		return typeofNode(payload, udataUint32(udataUint32(nil, 0, d.header), 1, d.daddrField))
	}
}

// typeofFields returns the description of a concatenation, or of a single field.
func typeofFields(d *dialect, fields []field) []byte {
	if len(fields) == 1 {
		return fields[0].typeofExpr(d)
	}
	const concatenation = 13
	var parts []byte
	for i, f := range fields {
		parts = udata(parts, byte(i), f.typeofExpr(d))
	}
	return typeofNode(concatenation, parts)
}

func typeofNode(kind uint32, data []byte) []byte {
	return udata(udataUint32(nil, 0, kind), 1, data)
}

// udata adds an entry of user data: type, length, and the data without padding.
func udata(b []byte, kind byte, data []byte) []byte {
	return append(append(b, kind, byte(len(data))), data...)
}

func udataUint32(b []byte, kind byte, n uint32) []byte {
	return binary.NativeEndian.AppendUint32(append(b, kind, 4), n)
}
