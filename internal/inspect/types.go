// SPDX-License-Identifier: Apache-2.0

// Package inspect answers queries about a running proxy: over its local socket, and over any other server that mounts
// Handler. It contains the types of the answers, which are versioned JSON, the handler, the client, and the tables that
// the commands print. It does not depend on the proxy: the daemon implements [Source].
//
// The API is unstable: the commands and the proxy must be of one release.
package inspect

import (
	"time"

	"github.com/sluice-proxy/sluice/observe/state"
)

// Version is the version of the API. It begins every path and is in every answer.
const Version = "v1alpha1"

// Over the network, a proxy may require a token of the cluster. The proxy of the API server passes on TokenHeader,
// unlike Authorization. The token has TokenAudience, so the API server itself does not accept it.
const (
	TokenHeader   = "Sluice-Authorization"
	TokenAudience = "sluice.dev"
)

// The paths. All take GET only. Services, AllDetails, AllEndpoints, Names and Events take the parameter namespace;
// Services also takes name. Service takes brief, which leaves out the objects. Explain takes those of explain.Flow, and
// Connections those of ConnectionQuery, limit and continue.
const (
	PathStatus       = "/" + Version + "/status"                                // Status
	PathServices     = "/" + Version + "/services"                              // ServiceList
	PathService      = "/" + Version + "/services/{namespace}/{name}"           // ServiceDetail
	PathAllDetails   = "/" + Version + "/details"                               // a list of ServiceDetail
	PathAllEndpoints = "/" + Version + "/endpoints"                             // a list of EndpointList
	PathEndpoints    = "/" + Version + "/services/{namespace}/{name}/endpoints" // EndpointList
	PathConnections  = "/" + Version + "/connections"                           // ConnectionList
	PathTop          = "/" + Version + "/top/{kind}"                            // TopList
	PathFlows        = "/" + Version + "/flows"                                 // lines of FlowEvent
	PathHistory      = "/" + Version + "/history"                               // History
	PathNames        = "/" + Version + "/names"                                 // Names
	PathExplain      = "/" + Version + "/explain"                               // explain.Answer
	PathGone         = "/" + Version + "/gone/{endpoint}"                       // Gone
	PathEvents       = "/" + Version + "/events"                                // EventList
	PathDump         = "/" + Version + "/dump"                                  // a .tar.gz
)

// Failure is the body of every answer that is not 200.
type Failure struct {
	Error string `json:"error"`
}

// Status is the state of the whole proxy.
type Status struct {
	APIVersion string `json:"apiVersion"`
	// Version is that of the program, and Compatible the kube-proxy release that it behaves like.
	Version    string `json:"version"`
	Compatible string `json:"compatible"`
	PID        int    `json:"pid"`
	// Started is when the process began, Now when this answer was made.
	Started time.Time `json:"started"`
	Now     time.Time `json:"now"`
	Mode    string    `json:"mode"`
	// ModeReason says why this mode serves.
	ModeReason string `json:"modeReason"`
	Node       string `json:"node"`
	Zone       string `json:"zone,omitempty"`
	// ConfigurationHash is the same on nodes with the same configuration file.
	ConfigurationHash string `json:"configurationHash"`
	Feed              Feed   `json:"feed"`
	// Offload is nil if the configuration does not ask for it.
	Offload *Offload `json:"offload,omitempty"`
	// SelfTest has the last result of each family that was tested.
	SelfTest []SelfTest `json:"selfTest,omitempty"`
	// Conntrack is nil in userspace mode, and before the connection table was read.
	Conntrack *Conntrack `json:"conntrack,omitempty"`
	// OtherChains are base chains of other programs that Service traffic passes. They are no problem by themselves.
	OtherChains []OtherChain `json:"otherChains,omitempty"`
	// Services is the number of Services with an actor.
	Services int `json:"services"`
	// States counts Services by state; nil from a proxy of an older release.
	States   *state.Counts `json:"states,omitempty"`
	Actors   Actors        `json:"actors"`
	Domains  []Domain      `json:"domains"`
	Activity Activity      `json:"activity"`
	// Health is starting, healthy, degraded (with findings) or unhealthy. Healthy is false if it is unhealthy.
	Health   string    `json:"health"`
	Healthy  bool      `json:"healthy"`
	Findings []Finding `json:"findings"`
}

// Feed is where Services come from.
type Feed struct {
	// From is the directory of manifests or the address of the API server.
	From string `json:"from"`
	// Synced is when the proxy had received all Services for the first time; zero before.
	Synced    time.Time  `json:"synced,omitzero"`
	Resources []Resource `json:"resources,omitempty"`
}

// The parts of a status.
type (
	OtherChain = state.OtherChain
	Offload    = state.Offload
	SelfTest   = state.SelfTest
	Conntrack  = state.Conntrack
	Resource   = state.Resource
	Actors     = state.Actors
	Domain     = state.Domain
	Activity   = state.Activity
	Recent     = state.Recent
	Repair     = state.Repair
	Event      = state.Event
)

// Finding is a problem that health reports. It contains only the names of the affected Services.
type Finding struct {
	state.Finding
	Services []string `json:"services,omitempty"`
}

// ServiceList is the answer about all Services, sorted by namespace and name.
type ServiceList struct {
	APIVersion string    `json:"apiVersion"`
	Now        time.Time `json:"now"`
	Items      []Service `json:"items"`
	// Namespace is that of all items, so that a table needs no column for it; empty if they are of several.
	Namespace string `json:"-"`
}

// Service is the line about one Service in a list.
type Service struct {
	Namespace   string    `json:"namespace"`
	Name        string    `json:"name"`
	Created     time.Time `json:"created,omitzero"`
	ClusterIPs  []string  `json:"clusterIPs"`
	ExternalIPs []string  `json:"externalIPs,omitempty"`
	// LoadBalancerIPs are those addresses of the Service's status whose traffic the node handles itself.
	LoadBalancerIPs []string `json:"loadBalancerIPs,omitempty"`
	Ports           []Port   `json:"ports"`
	InternalPolicy  string   `json:"internalTrafficPolicy"`
	// ExternalPolicy is empty for a Service that is not reachable from outside.
	ExternalPolicy string `json:"externalTrafficPolicy,omitempty"`
	// Balancing is how new connections choose their endpoints; see service.Balancing.
	Balancing string `json:"balancing"`
	state.Record
}

// Port is one port of a Service.
type Port struct {
	Name     string `json:"name,omitempty"`
	Protocol string `json:"protocol"`
	Port     int    `json:"port"`
	NodePort int    `json:"nodePort,omitempty"`
}

// ServiceDetail is everything about one Service.
type ServiceDetail struct {
	APIVersion string    `json:"apiVersion"`
	Now        time.Time `json:"now"`
	Service
	AffinitySeconds int      `json:"affinitySeconds,omitempty"`
	SourceRanges    []string `json:"loadBalancerSourceRanges,omitempty"`
	// DenySourceRanges are denied at all frontends but the ClusterIP.
	DenySourceRanges []string `json:"denySourceRanges,omitempty"`
	// NoEndpoints is reject, drop or pass if the Service requests one of them; see service.NoEndpoints.
	NoEndpoints string `json:"noEndpoints,omitempty"`
	// SlowStart, Outliers, ZoneMinEndpoints, ZoneShare and Drain are set by annotations; see docs/balancing.md.
	SlowStart           string `json:"slowStart,omitempty"`
	Outliers            bool   `json:"outliers,omitempty"`
	ZoneMinEndpoints    int    `json:"zoneMinEndpoints,omitempty"`
	ZoneShare           int    `json:"zoneShare,omitempty"`
	Drain               string `json:"drain,omitempty"`
	HealthCheckNodePort int    `json:"healthCheckNodePort,omitempty"`
	// Scheduler is the IPVS scheduler that the Service requests.
	Scheduler string          `json:"scheduler,omitempty"`
	Frontends []Frontend      `json:"frontends"`
	Actor     state.Actor     `json:"actor"`
	Domains   []ServiceDomain `json:"domains"`
	// Digest is the result of function Digest on this node.
	Digest string `json:"digest"`
	// Timeline has the last changes, the newest first, state.TimelineMax at most.
	Timeline []state.Change `json:"timeline"`
}

// Frontend is where clients reach a Service.
type Frontend struct {
	// Kind is ClusterIP, ExternalIP, LoadBalancerIP or NodePort.
	Kind string `json:"kind"`
	// Address is empty for a node port.
	Address  string `json:"address,omitempty"`
	Port     int    `json:"port"`
	Protocol string `json:"protocol"`
	PortName string `json:"portName,omitempty"`
	Family   string `json:"family"`
	// Policy is the traffic policy that applies here, Cluster or Local.
	Policy string `json:"policy"`
	// Endpoints counts the endpoints that may get new connections at this frontend.
	Endpoints int `json:"endpoints"`
	// ServedBy is the Service that has this frontend instead.
	ServedBy string `json:"servedBy,omitempty"`
}

// ServiceDomain is the state of one Service in one domain.
type ServiceDomain struct {
	Name  string      `json:"name"`
	State state.State `json:"state"`
	// Revision is the newest revision that the domain received, and Applied the newest that it applied.
	Revision string `json:"revision,omitempty"`
	Applied  string `json:"applied,omitempty"`
	// Quarantine is set if State is state.Rejected or state.NotLanding.
	Quarantine *state.Quarantine `json:"quarantine,omitempty"`
	// Objects are those of the Service, at most ObjectsMax; Omitted counts the others.
	Objects []Object `json:"objects"`
	Omitted int      `json:"omitted,omitempty"`
	// Error says why the domain did not answer; then only Name and Quarantine are known.
	Error string `json:"error,omitempty"`
}

// ObjectsMax bounds the objects that a domain lists of one Service.
const ObjectsMax = 500

// Object is one kernel object.
type Object struct {
	// Container is the table, map, set or chain that holds it.
	Container string `json:"container"`
	Name      string `json:"name"`
	// State is applied, pending (the kernel lacks it or has another) or shadowed (another Service
	// has it).
	State state.State `json:"state"`
}

// EndpointList is the answer about the endpoints of one Service.
type EndpointList struct {
	APIVersion string    `json:"apiVersion"`
	Now        time.Time `json:"now"`
	Namespace  string    `json:"namespace"`
	Name       string    `json:"name"`
	// Node and Zone are where the proxy runs; the rules depend on them.
	Node string `json:"node"`
	Zone string `json:"zone,omitempty"`
	// Ports has an entry for each family and port of the Service.
	Ports []EndpointPort `json:"ports"`
}

// EndpointPort has the endpoints of one service port in one family.
type EndpointPort struct {
	Port
	Family string `json:"family"`
	// Internal and External say how endpoints are chosen for traffic from inside the cluster (to
	// the ClusterIP), and from outside (to everything else); External is nil if nothing is
	// reachable from outside.
	Internal Rule  `json:"internal"`
	External *Rule `json:"external,omitempty"`
	// Endpoints are sorted by address, at most EndpointsMax; Omitted counts the others.
	Endpoints []Endpoint `json:"endpoints"`
	Omitted   int        `json:"omitted,omitempty"`
}

// EndpointsMax bounds the endpoints that an answer lists of one service port.
const EndpointsMax = 1000

// Rule says how endpoints are chosen for one kind of traffic.
type Rule struct {
	// Policy is the traffic policy, Cluster or Local.
	Policy string `json:"policy"`
	// Rule is the rule in words, for example "hinted for this zone".
	Rule string `json:"rule"`
	// Chosen counts the endpoints that get new connections.
	Chosen int `json:"chosen"`
}

// Endpoint is one address of one EndpointSlice behind a service port.
type Endpoint struct {
	// Address is the address with the port, for example "10.0.0.1:80".
	Address string `json:"address"`
	// Slice is the EndpointSlice.
	Slice string `json:"slice"`
	Node  string `json:"node,omitempty"`
	Zone  string `json:"zone,omitempty"`
	// Local reports that the endpoint runs on this node.
	Local       bool     `json:"local"`
	Ready       bool     `json:"ready"`
	Serving     bool     `json:"serving"`
	Terminating bool     `json:"terminating"`
	ForZones    []string `json:"forZones,omitempty"`
	ForNodes    []string `json:"forNodes,omitempty"`
	// Internal and External are the decisions for each kind of traffic; External is nil if EndpointPort.External is.
	Internal *Decision `json:"internal"`
	External *Decision `json:"external,omitempty"`
}

// Decision says whether an endpoint gets new connections, and why.
type Decision struct {
	Chosen bool `json:"chosen"`
	// Rule names what decided it; see service.Reason.
	Rule string `json:"rule"`
	// Why says it in words.
	Why string `json:"why"`
	// Share is the share of new connections that a chosen endpoint gets, from 0 to 1. It is 0 if all have the same weight.
	Share float64 `json:"share,omitempty"`
}

// Names is the answer for shell completion.
type Names struct {
	APIVersion string `json:"apiVersion"`
	// Namespaces are those that have Services.
	Namespaces []string `json:"namespaces"`
	// Services are the names in the wanted namespace, or "namespace/name" without one.
	Services []string `json:"services"`
}

// SocketName is the name of the socket in the state directory of a proxy, and DefaultSocket its
// path with the default state directory.
const (
	SocketName    = "sluice.sock"
	DefaultSocket = "/run/sluice/" + SocketName
)
