package nftables

import (
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/service"
)

// dialect is what differs between the families in rules and sets.
type dialect struct {
	family service.Family
	// protocol is NFPROTO_IPV4 or NFPROTO_IPV6.
	protocol uint8
	// name is nft's name of the family and of its header.
	name string
	// addrBytes is the size of an address; saddr and daddr are its offsets in
	// the header.
	addrBytes, saddr, daddr int
	// addrType is nft's number of the type of an address.
	addrType uint32
	// header, daddrField and so on are nft's numbers for "typeof ip daddr".
	header, daddrField uint32
	// rejectCode is the ICMP code for "port unreachable".
	rejectCode byte
	loopback   netip.Prefix
}

var dialects = service.PerFamily[*dialect]{
	service.IPv4: {
		family: service.IPv4, protocol: unix.NFPROTO_IPV4, name: "ip",
		addrBytes: 4, saddr: 12, daddr: 16, addrType: 7, header: 12, daddrField: 12,
		rejectCode: 3, loopback: netip.MustParsePrefix("127.0.0.0/8"),
	},
	service.IPv6: {
		family: service.IPv6, protocol: unix.NFPROTO_IPV6, name: "ip6",
		addrBytes: 16, saddr: 8, daddr: 24, addrType: 8, header: 13, daddrField: 9,
		rejectCode: 4, loopback: netip.MustParsePrefix("::1/128"),
	},
}
