package nftables

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/internal/netlink"
)

// set is the definition of a set or a map.
type set struct {
	name string
	key  []field
	// data makes it a map to endpoints, verdict one to verdicts.
	data    []field
	verdict bool
	// ranges lets the last field of a key be a range.
	ranges bool
	// remembers makes it a set that packets put themselves into, for a time.
	remembers bool
	// role is what the elements of a shared set are to a frontend; lead, for those that
	// follow, is the container of what they go with.
	role role
	lead string
}

// clientsMax is how many clients of one endpoint are remembered. Beyond it, new
// ones are not; nothing else happens to them.
const clientsMax = 1 << 18

// flagConcat is NFT_SET_CONCAT: fields are ranges of their own (Linux 5.6).
const flagConcat = 0x80

// descConcat is NFTA_SET_DESC_CONCAT (Linux 5.6).
const descConcat = 2

// setFieldLen is NFTA_SET_FIELD_LEN (Linux 5.6).
const setFieldLen = 1

var (
	frontendKey = []field{fieldDaddr, fieldProtocol, fieldPort}
	nodePortKey = []field{fieldProtocol, fieldPort}
	slotKey     = []field{fieldDaddr, fieldProtocol, fieldPort, fieldSlot}
	nodeSlotKey = []field{fieldProtocol, fieldPort, fieldSlot}
	endpointOf  = []field{fieldDaddr, fieldPort}
)

// sharedSets are those that hold elements of all Services.
var sharedSets = []set{
	{name: mapFrontends, key: frontendKey, verdict: true, role: frontends},
	{name: mapNodePorts, key: nodePortKey, verdict: true, role: frontends},
	{name: mapLocal, key: slotKey, data: endpointOf, role: follows, lead: inFrontends},
	{name: mapNodePortCluster, key: nodeSlotKey, data: endpointOf, role: follows, lead: inNodePorts},
	{name: mapNodePortLocal, key: nodeSlotKey, data: endpointOf, role: follows, lead: inNodePorts},
	{name: setNoEndpoints, key: frontendKey, role: frontends},
	{name: setNoLocal, key: frontendKey, role: frontends},
	{name: setNodePortNone, key: nodePortKey, role: frontends},
	{name: setNodePortNoLocal, key: nodePortKey, role: frontends},
	{name: setClusterIPs, key: []field{fieldDaddr}, role: shared},
	{name: setNodePortAddresses, key: []field{fieldDaddr}, role: shared},
	{name: setHairpins, key: []field{fieldSaddr, fieldDaddr, fieldProtocol, fieldPort}, role: shared},
	{name: setFirewalled, key: frontendKey, role: follows, lead: inFrontends},
	{name: setAllowed, key: []field{fieldDaddr, fieldProtocol, fieldPort, fieldSaddr}, ranges: true, role: follows, lead: inFirewalled},
}

func init() {
	for i := range len(shards) {
		sharedSets = append(sharedSets, set{name: clusterMap(shards[i : i+1]), key: slotKey, data: endpointOf, role: follows, lead: inFrontends})
	}
	for i, s := range sharedSets {
		containers[s.name] = elementsOf + s.name
		setIn[containers[s.name]] = &sharedSets[i]
		setRefs[s.name] = []dataplane.ID{setID(s.name)}
	}
}

// The containers of elements and what their elements refer to, made once.
var (
	containers = map[string]string{}
	setRefs    = map[string][]dataplane.ID{}
)

// clientsSet remembers the clients of one endpoint of a Service with affinity.
// Its elements say themselves how long they live, so that another timeout is no
// other set.
func clientsSet(base string) set {
	return set{name: prefixClientsSet + base, key: []field{fieldSaddr}, remembers: true}
}

// picksMap maps the slots of a Service with affinity to chains.
func picksMap(base string) set {
	return set{name: prefixPicksMap + base, key: []field{fieldSlot}, verdict: true}
}

// object gives the set as the ledger counts it.
func (s set) object(d *dialect) dataplane.Object {
	return dataplane.Object{ID: setID(s.name), Kind: dataplane.Owned, Body: string(s.body(d)), Refs: []dataplane.ID{tableID}}
}

// body is the definition in attributes of a set, in ascending order.
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
	if s.ranges || s.remembers {
		mark := 0
		b, mark = netlink.Nest(b, unix.NFTA_SET_DESC)
		b = s.description(b, d)
		b = netlink.End(b, mark)
	}
	return netlink.AppendBytes(b, unix.NFTA_SET_USERDATA, s.userData(d))
}

func (s set) flags() uint32 {
	flags := uint32(0)
	if s.verdict || s.data != nil {
		flags |= unix.NFT_SET_MAP
	}
	if s.ranges {
		flags |= unix.NFT_SET_INTERVAL | flagConcat
	}
	if s.remembers {
		flags |= unix.NFT_SET_TIMEOUT | unix.NFT_SET_EVAL
	}
	return flags
}

// description says what the kernel chooses the set's algorithm by.
func (s set) description(b []byte, d *dialect) []byte {
	if s.remembers {
		return netlink.AppendUint32(b, unix.NFTA_SET_DESC_SIZE, clientsMax)
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

// unpadded is the size of what a field holds.
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

// userData is what nft 1.0.6 stores with such a set, and needs to list it.
func (s set) userData(d *dialect) []byte {
	const (
		keyByteOrder, dataByteOrder = 0, 1
		keyTypeof, dataTypeof       = 3, 4
		dataInterval                = 6
		hostOrder, networkOrder     = 1, 2
		verdictNode, concatenation  = 1, 13
	)
	order := uint32(0) // none for a concatenation
	if len(s.key) == 1 {
		order = networkOrder
		if s.key[0] == fieldSlot {
			order = hostOrder
		}
	}
	b := udataUint32(nil, keyByteOrder, order)
	if !s.verdict && s.data == nil {
		if len(s.key) > 1 {
			b = udata(b, keyTypeof, typeofNode(concatenation, nil))
		}
		return b
	}
	b = udataUint32(b, dataByteOrder, 0)
	b = udata(b, keyTypeof, typeofFields(d, s.key))
	if s.verdict {
		b = udata(b, dataTypeof, typeofNode(verdictNode, nil))
	} else {
		b = udata(b, dataTypeof, typeofFields(d, s.data))
	}
	return udataUint32(b, dataInterval, 0)
}

// definition gives the set of a name.
func definition(name string) (set, error) {
	for _, s := range sharedSets {
		if s.name == name {
			return s, nil
		}
	}
	if base, ok := strings.CutPrefix(name, prefixClientsSet); ok {
		return clientsSet(base), nil
	}
	if base, ok := strings.CutPrefix(name, prefixPicksMap); ok {
		return picksMap(base), nil
	}
	return set{}, fmt.Errorf("no set of ours has the name %q", name)
}

// normalSet gives the body of a set that the kernel has described: what we
// define, in our order, and nothing else. The user data is a note from one nft to
// the next how to print the set; each release writes its own, and rules that
// another has loaded are as good as ours.
func normalSet(d *dialect, attrs []byte) string {
	var b []byte
	for _, kind := range []uint16{
		unix.NFTA_SET_FLAGS, unix.NFTA_SET_KEY_TYPE, unix.NFTA_SET_KEY_LEN, unix.NFTA_SET_DATA_TYPE,
		unix.NFTA_SET_DATA_LEN, unix.NFTA_SET_TIMEOUT, unix.NFTA_SET_DESC,
	} {
		attr := netlink.Find(attrs, kind)
		switch {
		case len(attr.Data) == 0:
		case kind == unix.NFTA_SET_DATA_LEN && netlink.Find(attrs, unix.NFTA_SET_DATA_TYPE).Uint32() == unix.NFT_DATA_VERDICT:
			// The size of a verdict inside this kernel.
		default:
			b = netlink.AppendBytes(b, kind, attr.Data)
		}
	}
	if s, err := definition(netlink.Find(attrs, unix.NFTA_SET_NAME).Text()); err == nil {
		b = netlink.AppendBytes(b, unix.NFTA_SET_USERDATA, s.userData(d))
	}
	return string(b)
}
