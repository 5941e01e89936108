package play

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/scenarios/fixture"
	"github.com/sluice-proxy/sluice/test/scenarios/network"
)

// UDP clients that keep their socket, and so their port: the kernel goes on with
// all they send as it began.
var _ = define("flow", verb{usage: `flow f1 opens p1 cluster/udp [a] (to endpoint a), flow f1 gets b, flow f1 gets refused,
flow f1 keeps (the same endpoint, by the same entry of the node), or flow f1 loses (that entry)`, kernel: true, parse: parseFlow})

// flows are those of one name, one per family.
type flows []*flow

// flow is one of them.
type flow struct {
	*netns.Flow
	question fixture.Question
	// endpoint is who answered last, and entry the node's then.
	endpoint string
	entry    netns.Tracked
}

func parseFlow(words []string) (statement, error) {
	if len(words) < 2 {
		return nil, errors.New("want NAME, and opens, gets, keeps or loses")
	}
	name, verb, rest := words[0], words[1], words[2:]
	switch {
	case verb == "opens" && len(rest) >= 2:
		return parseOpening(name, rest)
	case verb == "gets":
		want, err := parseOutcome(rest)
		return eachFlow(name, func(ctx context.Context, w *network.World, f *flow) error {
			return hold(ctx, func() error { return f.get(ctx, w, want) })
		}), err
	case verb == "keeps" && len(rest) == 0:
		return eachFlow(name, func(ctx context.Context, w *network.World, f *flow) error {
			before := f.entry
			if err := f.get(ctx, w, outcome{names: []string{f.endpoint}}); err != nil {
				return err
			}
			if f.entry != before {
				return fmt.Errorf("%v goes by the entry %+v, want it to go on by %+v", f.question, f.entry, before)
			}
			return nil
		}), nil
	case verb == "loses" && len(rest) == 0:
		return eachFlow(name, func(ctx context.Context, w *network.World, f *flow) error {
			return hold(ctx, func() error {
				now, err := w.EntryOf(service.UDP, f.Local(), f.question.To)
				if err == nil && now == f.entry {
					err = fmt.Errorf("%v: the node still has the entry %+v", f.question, now)
				}
				return err
			})
		}), nil
	default:
		return nil, errors.New("want NAME, and opens CLIENT TARGET [ENDPOINT], gets OUTCOME, keeps or loses")
	}
}

func eachFlow(name string, f func(context.Context, *network.World, *flow) error) statement {
	return settled(func(ctx context.Context, s *Stage, w *network.World) error {
		all, err := kept[flows](s, name)
		if err != nil {
			return err
		}
		for _, one := range all {
			if err := f(ctx, w, one); err != nil {
				return err
			}
		}
		return nil
	})
}

func parseOpening(name string, words []string) (statement, error) {
	to, err := parseTarget(words[1])
	if err != nil {
		return nil, err
	}
	var want *outcome
	if len(words) > 2 {
		o, err := parseOutcome(words[2:])
		if err != nil {
			return nil, err
		}
		want = &o
	}
	return settled(func(ctx context.Context, s *Stage, w *network.World) error {
		var all flows
		for _, family := range s.families {
			at, err := to.resolve(s, family)
			if err != nil {
				return err
			}
			q := fixture.Question{Family: family, From: words[0], To: at, Protocol: service.UDP, Patience: answerPatience}
			one, err := openFlow(ctx, w, q, want)
			if err != nil {
				return err
			}
			s.atEnd(one.Close)
			all = append(all, one)
		}
		keep(s, name, all)
		return nil
	}), nil
}

// openFlow opens flows until one leads where it should, if it should anywhere.
func openFlow(ctx context.Context, w *network.World, q fixture.Question, want *outcome) (*flow, error) {
	var last error
	for range attemptsMax {
		host, err := w.Host(q.From)
		if err != nil {
			return nil, err
		}
		opened, err := host.OpenFlow(ctx, netip.AddrPort{}, q.To)
		if err != nil {
			return nil, err
		}
		f := &flow{Flow: opened, question: q}
		if want == nil {
			return f, nil
		}
		if last = f.get(ctx, w, *want); last == nil {
			return f, nil
		}
		if err := f.Close(); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("none of %d flows: %w", attemptsMax, last)
}

// get sends one datagram, and wants it to have a certain end.
func (f *flow) get(ctx context.Context, w *network.World, want outcome) error {
	q := f.question
	if want.silent() {
		q.Patience = silencePatience
	}
	got, err := w.AskFlow(ctx, f.Flow, q)
	if err != nil {
		return err
	}
	if !want.allows(q, got) {
		return fmt.Errorf("%v from %v: got %v, want %v", q, f.Local(), got, want)
	}
	f.endpoint, f.entry = got.Name, netns.Tracked{}
	if got.Fate == fixture.Answered {
		f.entry, err = w.EntryOf(service.UDP, f.Local(), q.To)
	}
	return err
}
