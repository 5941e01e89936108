// SPDX-License-Identifier: Apache-2.0

package play

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/scenarios/cluster"
	"github.com/sluice-proxy/sluice/test/scenarios/fixture"
)

// target is where a question goes:
//
//	cluster[:port], t.cluster[:port]   the ClusterIP of a Service
//	nodeport                           the node's address at 30080
//	NAME[:port]                        an address of the fixture, or a literal one
//
// followed by /udp or /sctp for a protocol other than TCP. The default port is 80.
type target struct {
	// service is set for a ClusterIP, name for everything else.
	service, name string
	port          uint16
	protocol      service.Protocol
}

var protocols = map[string]service.Protocol{"tcp": service.TCP, "udp": service.UDP, "sctp": service.SCTP}

func parseTarget(word string) (target, error) {
	t := target{port: fixture.ServicePort, protocol: service.TCP}
	place, protocol, ok := strings.Cut(word, "/")
	if ok {
		if t.protocol, ok = protocols[protocol]; !ok {
			return t, fmt.Errorf("target %s: %q: want tcp, udp or sctp", word, protocol)
		}
	}
	if literal, err := netip.ParseAddrPort(place); err == nil {
		t.name, t.port = literal.Addr().String(), literal.Port()
		return t, nil
	}
	name, port, ok := strings.Cut(place, ":")
	if ok {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil {
			return t, fmt.Errorf("target %s: port: %w", word, err)
		}
		t.port = uint16(n)
	}
	switch of, isCluster := strings.CutSuffix(name, "cluster"); {
	case name == "nodeport":
		t.name = "node"
		if !ok {
			t.port = fixture.NodePort
		}
	case name == "cluster":
		t.service = cluster.Main
	case isCluster && strings.HasSuffix(of, "."):
		t.service = strings.TrimSuffix(of, ".")
	default:
		t.name = name
		_, err := fixture.Address(service.IPv4, name)
		return t, err
	}
	return t, nil
}

func (t target) resolve(s *Stage, family service.Family) (netip.AddrPort, error) {
	if t.service != "" {
		a, err := s.serviceIP(t.service, family)
		return netip.AddrPortFrom(a, t.port), err
	}
	a, err := fixture.Address(family, t.name)
	return netip.AddrPortFrom(a, t.port), err
}

// outcome is how questions have to end: with answers of every named server and of no other,
// refused, in silence, or denied, which is without an answer, as a firewall likes.
type outcome struct {
	fate   fixture.Fate
	denied bool
	names  []string
	// as is whose address the servers have to see, "" for any.
	as fixture.Source
}

var sources = []fixture.Source{fixture.AsClient, fixture.AsNode, fixture.AsOther}

func parseOutcome(words []string) (outcome, error) {
	if at := slices.Index(words, "as"); at >= 0 {
		if at+2 != len(words) || !slices.Contains(sources, fixture.Source(words[at+1])) {
			return outcome{}, fmt.Errorf("%q: want client, node or other behind as", strings.Join(words, " "))
		}
		o, err := parseOutcome(words[:at])
		o.as = fixture.Source(words[at+1])
		if err == nil && o.fate != fixture.Answered {
			err = errors.New("as belongs to answers")
		}
		return o, err
	}
	switch {
	case len(words) == 0:
		return outcome{}, errors.New("want an outcome behind =>")
	case len(words) == 1 && words[0] == "refused":
		return outcome{fate: fixture.Refused}, nil
	case len(words) == 1 && words[0] == "silence":
		return outcome{fate: fixture.Silent}, nil
	case len(words) == 1 && words[0] == "denied":
		return outcome{fate: fixture.Silent, denied: true}, nil
	}
	for _, name := range words {
		base, _, _ := strings.Cut(name, ":")
		if base == fixture.Beyond || base == fixture.Host {
			continue
		}
		if _, err := netip.ParseAddr(base); err == nil || !known(base) {
			return outcome{}, fmt.Errorf("%q: want names of endpoints, beyond, host, refused, silence or denied", name)
		}
	}
	return outcome{names: words}, nil
}

func known(name string) bool { return len(fixture.Texts(name)) == 2 }

func (o outcome) silent() bool { return o.fate == fixture.Silent }

// allows reports whether an answer is a wanted one. A client on the node has the node's addresses
// only, unless it has bound one.
func (o outcome) allows(q fixture.Question, got fixture.Answer) bool {
	if o.denied {
		return got.Fate != fixture.Answered
	}
	if got.Fate != o.fate {
		return false
	}
	if o.fate != fixture.Answered {
		return true
	}
	anyOfNode := q.From == "node" && !q.Source.IsValid()
	return slices.Contains(o.names, got.Name) && (o.as == "" || o.as == got.Source || (o.as == fixture.AsClient && anyOfNode && got.Source == fixture.AsNode))
}

// complete reports whether every wanted answer has been seen.
func (o outcome) complete(seen map[fixture.Answer]int) bool {
	if o.fate != fixture.Answered {
		return len(seen) > 0
	}
	for _, name := range o.names {
		found := false
		for got := range seen {
			found = found || got.Name == name
		}
		if !found {
			return false
		}
	}
	return true
}

// String writes an outcome as a scenario has it.
func (o outcome) String() string {
	if o.denied {
		return "denied"
	}
	if o.fate != fixture.Answered {
		return fixture.Answer{Fate: o.fate}.String()
	}
	text := strings.Join(o.names, " ")
	if o.as != "" {
		text += " as " + string(o.as)
	}
	return text
}
