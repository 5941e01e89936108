package service

// Protocol is the transport protocol of a service port (core/v1 Protocol).
type Protocol uint8

// The protocols a Service may name.
const (
	TCP Protocol = iota
	UDP
	SCTP
)

// String gives the lower-case name that iptables and nft use: "tcp", "udp" or
// "sctp".
func (p Protocol) String() string {
	switch p {
	case UDP:
		return "udp"
	case SCTP:
		return "sctp"
	default:
		return "tcp"
	}
}

// Number is the IP protocol number (IANA).
func (p Protocol) Number() uint8 {
	switch p {
	case UDP:
		return 17
	case SCTP:
		return 132
	default:
		return 6
	}
}
