package iptables

import (
	"crypto/sha256"
	"encoding/base32"
	"net/netip"

	"github.com/sluice-proxy/sluice/service"
)

// The chains that kube-proxy has too, with its names: people, scripts and other
// agents look for them, and kube-proxy takes them over on the way back.
const (
	chainServices      = "KUBE-SERVICES"
	chainExternal      = "KUBE-EXTERNAL-SERVICES"
	chainNodePorts     = "KUBE-NODEPORTS"
	chainPostrouting   = "KUBE-POSTROUTING"
	chainMarkMasq      = "KUBE-MARK-MASQ"
	chainForward       = "KUBE-FORWARD"
	chainProxyFirewall = "KUBE-PROXY-FIREWALL"
	chainFirewall      = "KUBE-FIREWALL"
	chainCanary        = "KUBE-PROXY-CANARY"
)

// The chains that only Sluice has. Their prefixes are those of chains that
// kube-proxy sweeps from nat.
const (
	// chainHairpin (nat) masquerades endpoints that reach themselves.
	chainHairpin = "KUBE-SVC-HAIRPIN"
	// chainExternalNodePorts (filter) refuses node ports without endpoints.
	chainExternalNodePorts = "KUBE-EXT-NODEPORTS"
)

// The chains of one service port are a prefix and 16 characters of a hash.
const (
	// prefixCluster balances over the Cluster endpoints.
	prefixCluster = "KUBE-SVC-"
	// prefixLocal balances over the Local endpoints.
	prefixLocal = "KUBE-SVL-"
	// prefixExternal is where external traffic enters.
	prefixExternal = "KUBE-EXT-"
	// prefixSourceRanges admits what the source ranges allow.
	prefixSourceRanges = "KUBE-FW-"
	// prefixEndpoint remembers the client of one endpoint (ClientIP affinity).
	prefixEndpoint = "KUBE-SEP-"
)

// hashBytes of a SHA-256 sum make 16 characters of base32.
const hashBytes = 10

// portHash names the chains of a service port. subject is
// service.Key.PortString; both are joined without a separator, as kube-proxy
// does.
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

func hash(text []byte) string {
	sum := sha256.Sum256(text)
	var b [16]byte
	base32.StdEncoding.Encode(b[:], sum[:hashBytes])
	return string(b[:])
}
