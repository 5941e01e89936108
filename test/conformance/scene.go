package conformance

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/service"
)

// scene is one case at work: a fresh node, and a pipeline into it.
type scene struct {
	*testing.T
	Fixture
	*Pipeline
	harness Harness
	node    Node
	// asking are the questions that take long.
	asking sync.WaitGroup
}

func openScene(t *testing.T, h Harness) *scene {
	t.Helper()
	world := NewFixture(h.Family)
	s := &scene{T: t, Fixture: world, harness: h, node: h.Open(t, world)}
	s.start(world.Facts())
	return s
}

// start starts a process that knows nothing yet.
func (s *scene) start(facts service.NodeFacts) {
	s.Pipeline = NewPipeline(s.harness, s.node.NewWriter(), facts)
	s.beforeWrite = s.asking.Wait
}

// apply serves the Service and writes.
func (s *scene) apply(spec service.Spec, slices ...*service.Slice) {
	s.Helper()
	s.Serve(spec, slices...)
	s.Converge(s.T)
}

// withFacts writes the scaffold for changed facts, before a Service is served.
func (s *scene) withFacts(change func(*service.NodeFacts)) {
	s.Helper()
	facts := s.Facts()
	change(&facts)
	s.SetFacts(facts)
	s.Converge(s.T)
}

// The frontends of the Service.
func (s *scene) clusterIP() netip.AddrPort  { return netip.AddrPortFrom(s.ClusterIP, servicePort) }
func (s *scene) vip() netip.AddrPort        { return netip.AddrPortFrom(s.VIP, servicePort) }
func (s *scene) externalIP() netip.AddrPort { return netip.AddrPortFrom(s.ExternalIP, servicePort) }
func (s *scene) nodePort() netip.AddrPort   { return netip.AddrPortFrom(s.Node, nodePort) }

// external are all frontends of the Service except the ClusterIP.
func (s *scene) external() []netip.AddrPort {
	return []netip.AddrPort{s.nodePort(), s.vip(), s.externalIP()}
}

// How long a client waits. An answer comes within milliseconds, or within seconds when many tests
// run. Silence takes the whole time. Waiting too briefly can only hide an answer where silence is
// expected.
const (
	answerPatience  = 5 * time.Second
	silencePatience = 250 * time.Millisecond
)

// expectation is what every connection of a kind must see.
type expectation struct {
	// fate is how every connection must end.
	fate Fate
	// answers must all be seen, and no others, if the fate is Answered.
	answers map[Answer]bool
}

// reaches expects each of the endpoints, which see the given source.
func reaches(source Source, endpoints ...netip.Addr) expectation {
	e := expectation{answers: make(map[Answer]bool)}
	for _, endpoint := range endpoints {
		e.answers[Answer{Answered, netip.AddrPortFrom(endpoint, endpointPort), source}] = true
	}
	return e
}

// and adds what another expectation has.
func (e expectation) and(other expectation) expectation {
	merged := expectation{answers: maps.Clone(e.answers)}
	maps.Copy(merged.answers, other.answers)
	return merged
}

var (
	through = expectation{fate: Through}
	refuses = expectation{fate: Refused}
	silence = expectation{fate: Silent}
)

// unallocated is the fate of connections to an address of the Service range that no Service has.
func (s *scene) unallocated() expectation {
	if s.harness.UnallocatedDropped {
		return silence
	}
	return through
}

// Attempts per expectation. An endpoint out of three stays unseen in all of attemptsMax with a
// probability below 1e-11.
const (
	attemptsMin = 3
	attemptsMax = 64
)

// expect connects over TCP until it has seen every expected answer, and fails at the first other
// one.
func (s *scene) expect(from Client, to netip.AddrPort, want expectation) {
	s.Helper()
	s.expectOver(service.TCP, from, to, want)
}

func (s *scene) expectOver(protocol service.Protocol, from Client, to netip.AddrPort, want expectation) {
	s.Helper()
	q := Question{From: from, To: to, Protocol: protocol, Patience: answerPatience}
	if want.fate != Answered {
		if want.fate == Silent {
			q.Patience = silencePatience
		}
		s.expectNoEndpoint(q, want)
		return
	}
	seen := make(map[Answer]bool)
	for i := 0; i < attemptsMax && (i < attemptsMin || len(seen) < len(want.answers)); i++ {
		got := s.node.Probe.Ask(s.T, q)
		if !want.answers[got] {
			s.Errorf("%v: got %v, want %v", q, got, want)
			return
		}
		seen[got] = true
	}
	if len(seen) < len(want.answers) {
		s.Errorf("%v: saw only %v of %v", q, expectation{answers: seen}, want)
	}
}

// expectNoEndpoint asks in the background, and the next write waits for it: silence takes long, and
// so does a refusal over IPv6. (The ICMPv6 error comes back within the connect call, where the
// kernel treats it as a soft error, so TCP sends again after a second; seen with Linux 6.18.)
func (s *scene) expectNoEndpoint(q Question, want expectation) {
	s.Helper()
	s.asking.Go(func() {
		s.Helper()
		if got := s.node.Probe.Ask(s.T, q); got.Fate != want.fate {
			s.Errorf("%v: got %v, want %v", q, got, want)
		}
	})
}

// String describes the expectation.
func (e expectation) String() string {
	if e.fate != Answered {
		return e.fate.String()
	}
	var listed []string
	for a := range e.answers {
		listed = append(listed, a.String())
	}
	slices.Sort(listed)
	return fmt.Sprintf("{%s}", strings.Join(listed, ", "))
}
