package conntrack

import (
	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/service"
)

// The messages of ctnetlink, and the attributes that matter here
// (linux/netfilter/nfnetlink_conntrack.h).
const (
	messageGet    = 1 // IPCTNL_MSG_CT_GET
	messageDelete = 2 // IPCTNL_MSG_CT_DELETE

	attrOriginal = 1  // CTA_TUPLE_ORIG
	attrReply    = 2  // CTA_TUPLE_REPLY
	attrID       = 12 // CTA_ID
	attrZone     = 18 // CTA_ZONE
	attrFilter   = 25 // CTA_FILTER

	attrTupleIP       = 1 // CTA_TUPLE_IP
	attrTupleProtocol = 2 // CTA_TUPLE_PROTO

	attrProtocol        = 1 // CTA_PROTO_NUM
	attrSourcePort      = 2 // CTA_PROTO_SRC_PORT
	attrDestinationPort = 3 // CTA_PROTO_DST_PORT

	// nested marks an attribute that holds others.
	nested = unix.NLA_F_NESTED
)

// attrFilterOriginal (CTA_FILTER_ORIG_FLAGS) says in bits which parts of a tuple have
// to be as given (net/netfilter/nf_internals.h).
const (
	attrFilterOriginal    = 1
	filterDestination     = 1 << 1 // CTA_IP_DST
	filterProtocol        = 1 << 3 // CTA_PROTO_NUM
	filterDestinationPort = 1 << 5 // CTA_PROTO_DST_PORT
)

// protocolUDP is the only protocol whose flows are looked at.
const protocolUDP = unix.IPPROTO_UDP

// layout is what differs between the families.
type layout struct {
	protocol            uint8  // NFPROTO_…
	source, destination uint16 // CTA_IP_…
}

var layouts = service.PerFamily[layout]{
	service.IPv4: {protocol: unix.NFPROTO_IPV4, source: 1, destination: 2},
	service.IPv6: {protocol: unix.NFPROTO_IPV6, source: 3, destination: 4},
}
