// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/listeners"
	"github.com/sluice-proxy/sluice/dataplane/relay"
	"github.com/sluice-proxy/sluice/dataplane/slots"
	"github.com/sluice-proxy/sluice/service"
)

// The containers of this backend's identities.
//
//	address   10.0.0.1          a local address, element without a body
//	listener  tcp/10.0.0.1:80   a listening socket, element; its body is a Table
//	health    31000             a health check node port, or the port of the node's health server, which
//	                            also answers at local addresses; element without a body, only with a guard
//	forwarder ready             the node's object, written after everything else in the first batch
const (
	containerForwarder = "forwarder"
	containerAddress   = "address"
	containerListener  = listeners.Container
	containerHealth    = "health"
)

// readyID is the identity of the node's object. Without it, the node would count as served before its
// first Service is.
var readyID = dataplane.ID{Container: containerForwarder, Name: "ready"}

func readyObject() dataplane.Object { return dataplane.Object{ID: readyID, Kind: dataplane.Owned} }

// addressObject is a local address as an object.
func addressObject(addr netip.Addr) dataplane.Object {
	return dataplane.Object{ID: dataplane.ID{Container: containerAddress, Name: addr.String()}, Kind: dataplane.Element}
}

// parseAddress returns the address in an identity.
func parseAddress(id dataplane.ID) (netip.Addr, error) {
	addr, err := netip.ParseAddr(id.Name)
	if err != nil {
		return addr, fmt.Errorf("object %s %q: %w", id.Container, id.Name, err)
	}
	return addr, nil
}

// healthObject is a health check port as an object.
func healthObject(port uint16) dataplane.Object {
	return dataplane.Object{ID: dataplane.ID{Container: containerHealth, Name: strconv.Itoa(int(port))}, Kind: dataplane.Element}
}

// parseHealth returns the port in an identity.
func parseHealth(id dataplane.ID) (uint16, error) {
	port, err := strconv.ParseUint(id.Name, 10, 16)
	if err != nil {
		return 0, fmt.Errorf("object %s %q: %w", id.Container, id.Name, err)
	}
	return uint16(port), nil
}

// Naming reads the identities of this backend's objects: a listener is a frontend, and an address
// belongs to all Services that have it.
type Naming struct{}

// Naming implements dataplane.Renderer.
func (*Renderer) Naming() dataplane.Naming { return Naming{} }

// Frontend implements dataplane.Naming.
func (Naming) Frontend(id dataplane.ID) (service.Frontend, bool) {
	if id.Container != containerListener {
		return service.Frontend{}, false
	}
	p, err := listeners.Place(id)
	return service.Frontend{Addr: p.At.Addr(), Port: p.At.Port(), Protocol: p.Protocol}, err == nil
}

// Stage implements dataplane.Naming.
func (Naming) Stage(id dataplane.ID) dataplane.Stage {
	if id.Container == containerListener {
		return dataplane.StageFrontend
	}
	return dataplane.StageNone
}

// Sends implements dataplane.Naming.
func (Naming) Sends(o *dataplane.Object, each func(netip.AddrPort)) {
	if o.ID.Container != containerListener {
		return
	}
	for line := range strings.SplitSeq(o.Body, "\n") {
		word, value, _ := strings.Cut(line, " ")
		if word != wordTo && word != wordNearTo {
			continue
		}
		if at, err := netip.ParseAddrPort(value); err == nil {
			each(at)
		}
	}
}

// Table describes how a listener treats its clients. It is immutable.
type Table struct {
	// Service and Port are the Service and the name of its port, which may be empty.
	Service service.Key
	Port    string
	// By is the algorithm of the Service, and Seed the seed of its hashes.
	By   service.Balancing
	Seed uint32
	// LeastConnections says to balance by the number of open connections, if By is Random.
	LeastConnections bool
	// ProxyProtocol says to send endpoints the header of the PROXY protocol, over TCP.
	ProxyProtocol bool
	// Drain is how long connections to removed endpoints stay open.
	Drain service.Drain
	// Affinity is how many seconds a client stays with its endpoint after its last connection;
	// 0 for none.
	Affinity int
	// Allowed are the sources that may connect; nil for all. Denied may not, even if they are in Allowed.
	Allowed, Denied []netip.Prefix
	// Near are sources that connect to NearTo; all other sources connect to To. If that list is empty,
	// their packets are dropped.
	Near       []netip.Prefix
	NearTo, To []netip.AddrPort
	// Weights are the weights of endpoints, if not 1.
	Weights map[netip.AddrPort]uint16
	// Kept are endpoints that keep their UDP sessions, but get no new ones.
	Kept []netip.AddrPort
}

// The words that begin the lines of a body.
const (
	wordOf       = "of"
	wordBalance  = "balance"
	wordProxy    = "proxy-protocol"
	wordAffinity = "affinity"
	wordAllow    = "allow"
	wordDeny     = "deny"
	wordNear     = "near"
	wordNearTo   = "near-to"
	wordTo       = "to"
	wordKept     = "keep"
	wordBy       = "by"
	wordWeight   = "weight"
	wordDrain    = "drain"
)

// The only values of wordBalance and wordProxy.
const (
	leastConnections = "leastConnections"
	proxyVersion     = "v2"
)

// switches are the optional lines with a fixed value.
func (t *Table) switches() []setting {
	return []setting{
		{wordBalance, leastConnections, &t.LeastConnections}, {wordProxy, proxyVersion, &t.ProxyProtocol},
	}
}

type setting struct {
	word, value string
	on          *bool
}

// body returns the table as the body of an object.
func (t *Table) body() string {
	var b strings.Builder
	if t.Service != (service.Key{}) {
		b.WriteString(strings.TrimSuffix(wordOf+" "+t.Service.String()+" "+t.Port, " ") + "\n")
	}
	for _, s := range t.switches() {
		if *s.on {
			b.WriteString(s.word + " " + s.value + "\n")
		}
	}
	if t.By != service.Random {
		fmt.Fprintf(&b, "%s %s %d\n", wordBy, t.By, t.Seed)
	}
	for _, e := range slices.SortedFunc(maps.Keys(t.Weights), netip.AddrPort.Compare) {
		fmt.Fprintf(&b, "%s %s %d\n", wordWeight, e, t.Weights[e])
	}
	if t.Drain.Limited {
		fmt.Fprintf(&b, "%s %s\n", wordDrain, t.Drain.After)
	}
	if t.Affinity > 0 {
		fmt.Fprintf(&b, "%s %d\n", wordAffinity, t.Affinity)
	}
	for _, line := range []struct {
		word   string
		ranges []netip.Prefix
	}{{wordAllow, t.Allowed}, {wordDeny, t.Denied}, {wordNear, t.Near}} {
		for _, r := range line.ranges {
			b.WriteString(line.word + " " + r.String() + "\n")
		}
	}
	for _, line := range []struct {
		word string
		to   []netip.AddrPort
	}{{wordNearTo, t.NearTo}, {wordTo, t.To}, {wordKept, t.Kept}} {
		for _, e := range line.to {
			b.WriteString(line.word + " " + e.String() + "\n")
		}
	}
	return b.String()
}

// parseTable is the reverse of body.
func parseTable(body string) (*Table, error) {
	t := &Table{}
	for line := range strings.Lines(body) {
		word, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		var err error
		switch word {
		case wordOf:
			err = t.parseOf(value)
		case wordBy:
			err = t.parseBy(value)
		case wordWeight:
			err = t.parseWeight(value)
		case wordAffinity:
			_, err = fmt.Sscanf(value, "%d", &t.Affinity)
		case wordDrain:
			t.Drain.Limited = true
			t.Drain.After, err = time.ParseDuration(value)
		case wordAllow:
			t.Allowed, err = add(t.Allowed, value, netip.ParsePrefix)
		case wordDeny:
			t.Denied, err = add(t.Denied, value, netip.ParsePrefix)
		case wordNear:
			t.Near, err = add(t.Near, value, netip.ParsePrefix)
		case wordNearTo:
			t.NearTo, err = add(t.NearTo, value, netip.ParseAddrPort)
		case wordKept:
			t.Kept, err = add(t.Kept, value, netip.ParseAddrPort)
		case wordTo:
			t.To, err = add(t.To, value, netip.ParseAddrPort)
		default:
			err = t.parseSwitch(word, value)
		}
		if err != nil {
			return nil, fmt.Errorf("content %q: %w", strings.TrimSpace(line), err)
		}
	}
	return t, nil
}

// parseSwitch reads one of the switches.
func (t *Table) parseSwitch(word, value string) error {
	for _, s := range t.switches() {
		if s.word == word && s.value == value {
			*s.on = true
			return nil
		}
	}
	return fmt.Errorf("unknown word %q or value %q", word, value)
}

// parseOf reads the Service and the name of the port.
func (t *Table) parseOf(value string) error {
	key, name, _ := strings.Cut(value, " ")
	namespace, of, found := strings.Cut(key, "/")
	if !found || namespace == "" || of == "" {
		return errors.New("a Service is required")
	}
	t.Service, t.Port = service.Key{Namespace: namespace, Name: of}, name
	return nil
}

// parseBy reads an algorithm and its seed.
func (t *Table) parseBy(value string) (err error) {
	name, seed, _ := strings.Cut(value, " ")
	known := false
	if t.By, known = service.ParseBalancing(name); !known {
		return fmt.Errorf("unknown algorithm %q", name)
	}
	_, err = fmt.Sscanf(seed, "%d", &t.Seed)
	return err
}

// parseWeight reads an endpoint and its weight.
func (t *Table) parseWeight(value string) error {
	addr, text, _ := strings.Cut(value, " ")
	at, err := netip.ParseAddrPort(addr)
	weight, wrong := strconv.ParseUint(text, 10, 16)
	t.setWeight(at, uint16(weight))
	return cmp.Or(err, wrong)
}

func (t *Table) setWeight(at netip.AddrPort, weight uint16) {
	if t.Weights == nil {
		t.Weights = make(map[netip.AddrPort]uint16)
	}
	t.Weights[at] = weight
}

// turns returns the indexes of endpoints in the order of their turns or, if the algorithm hashes, by hash slot; nil for
// one turn each.
func (t *Table) turns(of []netip.AddrPort) []int {
	if len(of) == 0 || !t.By.Hashes() && len(t.Weights) == 0 {
		return nil
	}
	endpoints := make([]service.Endpoint, len(of))
	for i, at := range of {
		endpoints[i] = service.Endpoint{AddrPort: at, Weight: t.Weights[at]}
	}
	return slots.Table(endpoints, t.By.Hashes(), false)
}

// sharesAlike reports whether the turns of both tables are the same.
func (t *Table) sharesAlike(other *Table) bool {
	return t.By.Hashes() == other.By.Hashes() && maps.Equal(t.Weights, other.Weights) &&
		slices.Equal(t.To, other.To) && slices.Equal(t.NearTo, other.NearTo)
}

// id returns the Service port of a table at a place.
func (t *Table) id(p relay.Place) PortID {
	if t.Service == (service.Key{}) {
		return PortID{}
	}
	return PortID{Service: t.Service, Name: t.Port, Protocol: p.Protocol, Family: service.FamilyOf(p.At.Addr())}
}

func add[T any](all []T, text string, parse func(string) (T, error)) ([]T, error) {
	one, err := parse(text)
	return append(all, one), err
}

// targets returns the endpoints of a client; none if its packets are dropped.
func (t *Table) targets(client netip.Addr) []netip.AddrPort {
	all, _ := t.side(client)
	return all
}

// side returns the endpoints of a client with their role.
func (t *Table) side(client netip.Addr) ([]netip.AddrPort, roles) {
	switch {
	case t.Allowed != nil && !within(client, t.Allowed), within(client, t.Denied):
		return nil, 0
	case within(client, t.Near):
		return t.NearTo, inNearTo
	default:
		return t.To, inTo
	}
}

func within(client netip.Addr, ranges []netip.Prefix) bool {
	return slices.ContainsFunc(ranges, func(r netip.Prefix) bool { return r.Contains(client) })
}

// has reports whether an endpoint gets new connections from any client.
func (t *Table) has(endpoint netip.AddrPort) bool {
	return slices.Contains(t.To, endpoint) || slices.Contains(t.NearTo, endpoint)
}

// roles are the lists of a table that contain an endpoint.
type roles uint8

// The roles.
const (
	inTo roles = 1 << iota
	inNearTo
	inKept
)

// roles returns the endpoints with their roles.
func (t *Table) roles() map[netip.AddrPort]roles {
	all := make(map[netip.AddrPort]roles, len(t.To)+len(t.NearTo)+len(t.Kept))
	for i, part := range [...][]netip.AddrPort{t.To, t.NearTo, t.Kept} {
		for _, e := range part {
			all[e] |= 1 << i
		}
	}
	return all
}
