// Package explained asks package explain the questions that clients ask with packets, and compares
// the answers. Its rules follow from the same API objects and flags as the proxy's.
package explained

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sluice-proxy/sluice/internal/daemon"
	"github.com/sluice-proxy/sluice/internal/daemon/config"
	"github.com/sluice-proxy/sluice/internal/explain"
	"github.com/sluice-proxy/sluice/internal/host/hostaddress"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source"
	"github.com/sluice-proxy/sluice/test/apitest"
	"github.com/sluice-proxy/sluice/test/scenarios/cluster"
	"github.com/sluice-proxy/sluice/test/scenarios/fixture"
	"github.com/sluice-proxy/sluice/test/scenarios/model"
	"github.com/sluice-proxy/sluice/test/scenarios/network"
)

// Counts are how much was compared.
type Counts struct {
	Scenarios, Packets, Disagreements atomic.Int64
}

// Twin knows what the proxy of a world knows. It is the server of the scenario's API objects, and
// passes them on.
type Twin struct {
	world   *network.World
	mode    string
	podPort string
	counts  *Counts
	next    cluster.Server
	local   *apitest.Local
	asked   atomic.Bool

	mu sync.Mutex
	// cache is that of a proxy with these words.
	cache *source.Cache
	words []string
}

// New returns the twin of a world's proxy.
func New(world *network.World, mode, podPort string, counts *Counts) *Twin {
	if podPort == "" {
		podPort = "veth-p1"
	}
	return &Twin{world: world, mode: mode, podPort: podPort, counts: counts, next: world.API, local: apitest.NewLocal()}
}

// cacheOf returns the cache of the proxy that was started with some words. Each start with other
// words makes a new one.
func (t *Twin) cacheOf(words []string, o *daemon.Options) (*source.Cache, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.cache != nil && slices.Equal(words, t.words) {
		return t.cache, nil
	}
	t.words = words
	t.cache = source.NewCache(discard{}, source.Options{IgnoreExternalIPs: !o.GateEnabled(config.GateAllowServiceExternalIPs)})
	return t.cache, model.Follow(t.local, t.cache)
}

// Set implements cluster.Server.
func (t *Twin) Set(resource string, object runtime.Object) {
	t.local.Set(resource, object.DeepCopyObject())
	t.next.Set(resource, object)
}

// Remove implements cluster.Server.
func (t *Twin) Remove(resource, namespace, name string) {
	t.local.Remove(resource, namespace, name)
	t.next.Remove(resource, namespace, name)
}

// Compare returns an error unless every answer that clients got is one that package explain
// foretells.
func (t *Twin) Compare(_ context.Context, q fixture.Question, got map[fixture.Answer]int) error {
	words := t.world.Words()
	if words == nil || t.world.Alive() != nil {
		return nil // there is no proxy whose rules these are
	}
	state, local, err := t.state(words)
	if err != nil {
		return err
	}
	if t.asked.CompareAndSwap(false, true) {
		t.counts.Scenarios.Add(1)
	}
	answer, possible, err := t.foretell(state, q, local)
	if err != nil {
		return err
	}
	for seen, times := range got {
		if !agree(q, answer, possible, seen) {
			return &DisagreementError{fmt.Sprintf("%v: explain foretells %v (%v), but the client got %v", q, possible, answer.Reasons, seen)}
		}
		t.counts.Packets.Add(int64(times))
	}
	return nil
}

// DisagreementError says that a client got an answer that package explain did not foretell. While
// a change is on its way that may happen, so a question is asked again.
type DisagreementError struct{ text string }

func (e *DisagreementError) Error() string { return e.text }

// Count counts a scenario that has failed with a disagreement.
func (c *Counts) Count(err error) {
	if _, disagrees := errors.AsType[*DisagreementError](err); disagrees {
		c.Disagreements.Add(1)
	}
}

// foretell asks package explain.
func (t *Twin) foretell(state *explain.State, q fixture.Question, local func(netip.Addr) bool) (*explain.Answer, []fixture.Answer, error) {
	packet, err := fixture.PacketOf(q, t.podPort, local)
	if err != nil {
		return nil, nil, err
	}
	answer, err := explain.Explain(state, explain.Question{
		From: netip.AddrPortFrom(packet.From, 0), Interface: packet.In, To: q.To, Protocol: q.Protocol,
	})
	if err != nil {
		return nil, nil, fmt.Errorf("%v: explain: %w", q, err)
	}
	var possible []fixture.Answer
	for _, o := range answer.Outcomes {
		to, err := netip.ParseAddrPort(o.To)
		if err != nil {
			return nil, nil, err
		}
		end := fixture.End{
			Refused: o.Verdict == explain.Refused, Dropped: o.Verdict == explain.Dropped, To: to, Masqueraded: o.Masqueraded,
		}
		possible = append(possible, fixture.AnswerTo(q, packet.From, local, end))
	}
	return answer, possible, nil
}

// agree reports whether an answer is a possible one. What the rules leave alone may also end at a
// server that the scenario has started on a host, of which package fixture knows nothing.
func agree(q fixture.Question, answer *explain.Answer, possible []fixture.Answer, seen fixture.Answer) bool {
	if answer.Verdict == explain.Untouched && seen.Name == fixture.Host {
		return true
	}
	return slices.ContainsFunc(possible, func(p fixture.Answer) bool {
		sameSource := p.Source == seen.Source || q.From == "node"
		return p.Fate == seen.Fate && p.Name == seen.Name && (sameSource || p.Fate != fixture.Answered)
	})
}

// state returns what the rules of the proxy follow from, and which addresses are the node's.
func (t *Twin) state(words []string) (*explain.State, func(netip.Addr) bool, error) {
	set := pflag.NewFlagSet("proxy", pflag.ContinueOnError)
	o := &daemon.Options{Flags: config.BindProxy(set)}
	if err := set.Parse(words); err != nil {
		return nil, nil, err
	}
	if err := o.Load(); err != nil {
		return nil, nil, err
	}
	cache, err := t.cacheOf(words, o)
	if err != nil {
		return nil, nil, err
	}
	var hosts []netip.Addr
	err = t.world.Node().Do(func() (err error) {
		hosts, err = hostaddress.List()
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	mode := config.Mode(t.mode)
	if o.KubeProxy.Mode != config.ModeBest {
		mode = o.KubeProxy.Mode // a scenario may start another one
	}
	settings, err := o.NodeSettings(mode)
	if err != nil {
		return nil, nil, err
	}
	facts := settings.Facts(cache.Node(), hosts, cache.ServiceCIDRs())
	state, err := daemon.ExplainState(o, mode, cache, cache.Node(), facts, hosts)
	return state, func(a netip.Addr) bool { return a.IsLoopback() || slices.Contains(hosts, a) }, err
}

// discard drops what a cache announces.
type discard struct{}

func (discard) PostSpec(service.Key, *service.Spec)           {}
func (discard) PostSlice(service.Key, string, *service.Slice) {}
func (discard) PostNode(*service.NodeObject)                  {}
func (discard) PostServiceCIDRs([]netip.Prefix)               {}
func (discard) Primed()                                       {}
