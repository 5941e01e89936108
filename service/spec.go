// SPDX-License-Identifier: Apache-2.0

package service

import (
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Spec is what the API said about one Service, reduced to what a proxy needs. A
// nil *Spec means that the Service does not exist, or that it is of a kind
// which is not proxied (ExternalName, headless).
type Spec struct {
	Key Key
	// Created is metadata.creationTimestamp; see source.Cache for which Service gets a contested frontend.
	Created time.Time
	// ClusterIPs holds the ClusterIP of each family; the zero Addr means none.
	ClusterIPs PerFamily[netip.Addr]
	// Ports are spec.ports in API order.
	Ports []Port
	// ExternalIPs are the parsed spec.externalIPs, canonical, without
	// duplicates, in API order.
	ExternalIPs PerFamily[[]netip.Addr]
	// LoadBalancerVIPs are status.loadBalancer.ingress[].ip whose ipMode is VIP
	// or nil, canonical, without duplicates, in API order.
	LoadBalancerVIPs PerFamily[[]netip.Addr]
	// SourceRanges are the masked spec.loadBalancerSourceRanges. Empty means that
	// every source is allowed; a prefix of length 0 empties the list.
	SourceRanges PerFamily[[]netip.Prefix]
	// DenyRanges are the sources that may not reach any frontend but the ClusterIP, as MergeRanges returns them.
	DenyRanges PerFamily[[]netip.Prefix]
	// NoEndpoints is what happens to connections while there is no endpoint for them.
	NoEndpoints NoEndpoints
	// InternalLocal is internalTrafficPolicy: Local.
	InternalLocal bool
	// ExternalLocal is externalTrafficPolicy: Local on a Service whose type
	// makes it count: LoadBalancer, NodePort, or ClusterIP with externalIPs.
	ExternalLocal bool
	// HealthCheckNodePort is set only for type LoadBalancer with
	// externalTrafficPolicy Local; 0 means none.
	HealthCheckNodePort uint16
	// AffinitySeconds is the ClientIP affinity timeout; 0 means no affinity.
	AffinitySeconds int
	// Scheduling is the IPVS scheduling that the Service asks for.
	Scheduling Scheduling
	// Balancing is how new connections choose their endpoints. It is Random with ClientIP affinity.
	Balancing Balancing
	// Adaptation says which observations of the node count, and Zones how far zone hints do.
	Adaptation Adaptation
	Zones      ZonePolicy
	// ProxyProtocol says that endpoints want the client's address in a PROXY protocol header, in userspace mode.
	ProxyProtocol bool
	// FlowLog asks for records of the connections.
	FlowLog bool
	// Drain limits connections to endpoints that have left.
	Drain Drain
	// Denied are the frontends that another Service has, sorted by frontend. They are not served.
	// source.Cache sets them: they follow from all Services.
	Denied PerFamily[[]Denial]
}

// Equal reports whether two specs are equal, regardless of Denied. Order counts, since it is the
// order in which frontends are rendered. Two nil specs are equal.
func (s *Spec) Equal(other *Spec) bool {
	if s == nil || other == nil {
		return s == other
	}
	for _, family := range Families {
		if !slices.Equal(s.ExternalIPs[family], other.ExternalIPs[family]) ||
			!slices.Equal(s.LoadBalancerVIPs[family], other.LoadBalancerVIPs[family]) ||
			!slices.Equal(s.SourceRanges[family], other.SourceRanges[family]) ||
			!slices.Equal(s.DenyRanges[family], other.DenyRanges[family]) {
			return false
		}
	}
	return s.Key == other.Key && s.Created.Equal(other.Created) &&
		s.ClusterIPs == other.ClusterIPs &&
		slices.Equal(s.Ports, other.Ports) &&
		s.NoEndpoints == other.NoEndpoints &&
		s.InternalLocal == other.InternalLocal &&
		s.ExternalLocal == other.ExternalLocal &&
		s.HealthCheckNodePort == other.HealthCheckNodePort &&
		s.AffinitySeconds == other.AffinitySeconds &&
		s.Scheduling == other.Scheduling &&
		s.Balancing == other.Balancing &&
		s.Adaptation == other.Adaptation && s.Zones == other.Zones &&
		s.ProxyProtocol == other.ProxyProtocol &&
		s.FlowLog == other.FlowLog && s.Drain == other.Drain
}

// Port is one element of spec.ports, the unit of programming. Within a Service
// it is identified by Name and Protocol.
type Port struct {
	Name     string
	Protocol Protocol
	Port     uint16
	// NodePort is 0 when the Service opens none.
	NodePort uint16
	// NotOutside is set if the port is not served at external IPs and load balancer IPs: they may be addresses of
	// nodes, which listen at the same port.
	NotOutside bool
}

// Key names one Service. It is the address of an actor, the key of its mailbox
// and the owner of its objects in the kernel; nothing else identifies a
// Service.
type Key struct {
	Namespace string
	Name      string
}

// Node is the reserved key under which node-wide facts travel. It cannot
// collide with a Service: the API gives every Service a namespace.
var Node = Key{Name: "node"}

// String returns "namespace/name", the form kube-proxy uses in rule comments, and
// "node" for the reserved key.
func (k Key) String() string {
	if k.Namespace == "" {
		return k.Name
	}
	return k.Namespace + "/" + k.Name
}

// PortString names a service port of the Service as kube-proxy does in rule
// comments and in the hashes of chain names: "namespace/name:port", or
// "namespace/name" for the unnamed port.
func (k Key) PortString(portName string) string {
	if portName == "" {
		return k.String()
	}
	return k.String() + ":" + portName
}

// ParseKey is the reverse of String.
func ParseKey(text string) Key {
	namespace, name, found := strings.Cut(text, "/")
	if !found {
		return Key{Name: text}
	}
	return Key{Namespace: namespace, Name: name}
}

// Compare orders keys by namespace, then name.
func (k Key) Compare(other Key) int {
	if c := strings.Compare(k.Namespace, other.Namespace); c != 0 {
		return c
	}
	return strings.Compare(k.Name, other.Name)
}

// Protocol is the transport protocol of a service port (core/v1 Protocol).
type Protocol uint8

// The protocols a Service may name.
const (
	TCP Protocol = iota
	UDP
	SCTP
)

// String returns the lower-case name that iptables and nft use: "tcp", "udp" or
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

// ParseProtocol is the reverse of String. It returns false for any other text.
func ParseProtocol(text string) (Protocol, bool) {
	for p := TCP; p <= SCTP; p++ {
		if p.String() == text {
			return p, true
		}
	}
	return TCP, false
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

// ProtocolOf is the reverse of Number. It returns false for the number of another protocol.
func ProtocolOf(number uint8) (Protocol, bool) {
	for p := TCP; p <= SCTP; p++ {
		if p.Number() == number {
			return p, true
		}
	}
	return TCP, false
}

// Scheduling is the IPVS scheduling that a Service asks for. The zero value leaves it
// to the configuration of the node. Other backends ignore it.
type Scheduling struct {
	// Scheduler is the kernel's name of an IPVS scheduler, for example "sh".
	Scheduler string
	// Ports lets a hashing scheduler include the client's port, which spreads the
	// connections of one client (flags sh-port, mh-port).
	Ports bool
	// Fallback lets a hashing scheduler try another endpoint if the chosen one takes
	// no new connections (flags sh-fallback, mh-fallback).
	Fallback bool
}
