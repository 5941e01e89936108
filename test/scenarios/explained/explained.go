// SPDX-License-Identifier: Apache-2.0

// Package explained asks the running proxy what becomes of connections that clients have just made
// ("sluice explain"), and compares its answers with theirs.
package explained

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/sluice-proxy/sluice/internal/explain"
	"github.com/sluice-proxy/sluice/internal/host/hostaddress"
	"github.com/sluice-proxy/sluice/internal/inspect"
	"github.com/sluice-proxy/sluice/test/scenarios/fixture"
	"github.com/sluice-proxy/sluice/test/scenarios/network"
)

// Counts are how much was compared.
type Counts struct {
	Scenarios, Packets, Disagreements atomic.Int64
}

// String is the line that says so.
func (c *Counts) String() string {
	return fmt.Sprintf("explain: %d scenarios, %d packets, %d disagreements",
		c.Scenarios.Load(), c.Packets.Load(), c.Disagreements.Load())
}

// Comparison compares the answers of one scenario.
type Comparison struct {
	World *network.World
	// PodPort is the name of the node's interface to p1, if not the usual one.
	PodPort string
	// OthersDrop is set if rules of others drop packets, which explain does not consider.
	OthersDrop bool
	Counts     *Counts

	compared atomic.Bool
}

// askTime bounds one question.
const askTime = 10 * time.Second

// Compare returns an error unless every answer that clients got is a possible one. A proxy whose
// newest rules are not applied is not asked about them.
func (c *Comparison) Compare(ctx context.Context, q fixture.Question, got map[fixture.Answer]int) error {
	if p := c.World.Process(); p == nil || !p.Running() {
		return nil // nobody can be asked
	}
	var hosts []netip.Addr
	err := c.World.Node().Do(func() (err error) {
		hosts, err = hostaddress.List()
		return err
	})
	if err != nil {
		return err
	}
	local := func(a netip.Addr) bool { return a.IsLoopback() || slices.Contains(hosts, a) }
	packet, err := fixture.PacketOf(q, c.PodPort, local)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	from := netip.AddrPortFrom(packet.From, 0)
	if q.Source.IsValid() {
		// The client binds to its address. In IPVS mode that matters for processes of the node.
		from = netip.AddrPortFrom(packet.From, max(q.Source.Port(), 1024))
	}
	answer, err := inspect.NewClient(filepath.Join(c.World.StateDir(), inspect.SocketName)).Explain(ctx, explain.Flow{
		From: from, Interface: packet.In, To: q.To, Protocol: q.Protocol,
	})
	if err != nil {
		return fmt.Errorf("%v: explain: %w", q, err)
	}
	if len(answer.Pending) > 0 {
		return nil
	}
	if c.compared.CompareAndSwap(false, true) {
		c.Counts.Scenarios.Add(1)
	}
	return c.judge(q, answer, func(e fixture.End) fixture.Answer { return fixture.AnswerTo(q, packet.From, local, e) }, got)
}

// judge compares every answer with the possible ones. Told is what a client learns of an end.
func (c *Comparison) judge(q fixture.Question, answer *explain.Answer, told func(fixture.End) fixture.Answer, got map[fixture.Answer]int) error {
	var possible []fixture.Answer
	for _, o := range answer.Outcomes {
		to, err := netip.ParseAddrPort(o.To)
		if err != nil {
			return err
		}
		possible = append(possible, told(fixture.End{
			Refused: o.Verdict == explain.Refused, Dropped: o.Verdict == explain.Dropped, To: to, Masqueraded: o.Masqueraded,
		}))
	}
	if answer.Verdict == explain.Untouched {
		// The rules leave it alone. It may meet a server that the scenario has started on a host.
		for source := range got {
			if source.Name == fixture.Host {
				possible = append(possible, source)
			}
		}
		if c.OthersDrop {
			possible = append(possible, fixture.Answer{Fate: fixture.Silent})
		}
	}
	for seen, times := range got {
		agrees := slices.ContainsFunc(possible, func(p fixture.Answer) bool {
			return p.Fate == seen.Fate && p.Name == seen.Name && (p.Source == seen.Source || q.From == "node")
		})
		if !agrees {
			return &DisagreementError{fmt.Sprintf("%v: explain says %v (%v), but the client got %v", q, possible, answer.Reasons, seen)}
		}
		c.Counts.Packets.Add(int64(times))
	}
	return nil
}

// DisagreementError says that a client got an answer that is not possible according to explain.
// While a change is on its way that may happen, so the question is asked again.
type DisagreementError struct{ text string }

func (e *DisagreementError) Error() string { return e.text }

// Note counts a scenario that has failed with a disagreement.
func (c *Counts) Note(err error) {
	if _, disagrees := errors.AsType[*DisagreementError](err); disagrees {
		c.Disagreements.Add(1)
	}
}
