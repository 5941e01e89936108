// SPDX-License-Identifier: Apache-2.0

package play

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/netnstest"
	"github.com/sluice-proxy/sluice/test/scenarios/fixture"
	"github.com/sluice-proxy/sluice/test/scenarios/network"
)

// TCP connections that stay open, to see how changes affect them.
var _ = define("session", verb{usage: "session s1 opens p1 cluster a (to endpoint a), then session s1 lives, or dies, or ends (by a reset); session many*200 opens … opens as many", kernel: true, parse: parseSession})

// sessions are the connections of one name, one per family, or as many as the number after a star
// says.
type sessions []*netnstest.Session

func parseSession(words []string) (statement, error) {
	switch {
	case len(words) >= 5 && words[1] == "opens":
		to, err := parseTarget(words[3])
		if err != nil {
			return nil, err
		}
		name, count, err := times(words[0])
		if err != nil {
			return nil, err
		}
		want, err := parseOutcome(words[4:])
		return settled(func(ctx context.Context, s *Stage, w *network.World) error {
			return openSessions(ctx, s, w, name, count, words[2], to, want)
		}), err
	case len(words) == 2 && (words[1] == "lives" || words[1] == "dies"):
		return settled(func(ctx context.Context, s *Stage, _ *network.World) error {
			return echo(ctx, s, words[0], words[1] == "lives")
		}), nil
	case len(words) == 2 && words[1] == "ends":
		return settled(func(_ context.Context, s *Stage, _ *network.World) error { return endSessions(s, words[0]) }), nil
	default:
		return nil, errors.New("want NAME[*COUNT] opens CLIENT TARGET ENDPOINT…, NAME lives, NAME dies, or NAME ends")
	}
}

// times parses NAME and NAME*COUNT.
func times(word string) (name string, count int, err error) {
	name, text, ok := strings.Cut(word, "*")
	if !ok {
		return name, 1, nil
	}
	if count, err = strconv.Atoi(text); err != nil || count < 1 {
		return "", 0, fmt.Errorf("%q: want NAME*COUNT with a count from 1 on", word)
	}
	return name, count, nil
}

// openSessions opens connections until there are enough to a wanted endpoint.
func openSessions(ctx context.Context, s *Stage, w *network.World, name string, count int, client string, to target, want outcome) error {
	host, err := w.Host(client)
	if err != nil {
		return err
	}
	var all sessions
	for _, family := range s.families {
		at, err := to.resolve(s, family)
		if err != nil {
			return err
		}
		for range count {
			opened, err := openTo(ctx, w, host, fixture.Question{Family: family, From: client, To: at, Protocol: service.TCP}, want)
			if err != nil {
				return err
			}
			s.atEnd(func() error {
				if err := opened.Close(); !errors.Is(err, net.ErrClosed) {
					return err
				}
				return nil // the scenario has ended it
			})
			all = append(all, opened)
		}
	}
	keep(s, name, all)
	return nil
}

func openTo(ctx context.Context, w *network.World, host *netns.Namespace, q fixture.Question, want outcome) (*netnstest.Session, error) {
	for range attemptsMax {
		opened, err := netnstest.ConnectFrom(ctx, host, netip.AddrPort{}, q.To)
		if err != nil {
			return nil, err
		}
		if want.allows(q, w.Answer(q, opened.Answer())) {
			return opened, nil
		}
		if err := opened.Close(); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("%v: none of %d connections ended at %v", q, attemptsMax, want)
}

// endSessions ends each connection by a reset, so that no host on the way keeps it.
func endSessions(s *Stage, name string) error {
	all, err := kept[sessions](s, name)
	if err != nil {
		return err
	}
	var errs []error
	for _, session := range all {
		errs = append(errs, session.Reset())
	}
	return errors.Join(errs...)
}

// echo sends a line on each connection, and fails unless it lives, or is dead.
func echo(ctx context.Context, s *Stage, name string, lives bool) error {
	all, err := kept[sessions](s, name)
	if err != nil {
		return err
	}
	most := echoMax
	if !lives {
		most = silentMax
	}
	for _, session := range all {
		ctx, cancel := context.WithTimeout(ctx, most)
		err := session.Echo(ctx, "still there?")
		cancel()
		if lives && err != nil {
			return fmt.Errorf("%s died: %w", name, err)
		}
		if !lives && err == nil {
			return fmt.Errorf("%s to %s lives, want it dead", name, session.Answer().Backend)
		}
	}
	return nil
}

// Stray segments: the endpoint of a session sends segments outside of any window. They must not
// reach the client, which would see an unknown sender and answer with a reset.
var _ = define("stray", verb{usage: "stray s1 b p1 (endpoint b of session s1 sends segments outside of the window, and p1 resets nothing)", kernel: true, parse: parseStray})

// strayRest is how long a reset may take.
const strayRest = 200 * time.Millisecond

func parseStray(words []string) (statement, error) {
	if len(words) != 3 {
		return nil, errors.New("want the name of a session, its endpoint and its client")
	}
	return settled(func(ctx context.Context, s *Stage, w *network.World) error {
		all, err := kept[sessions](s, words[0])
		if err != nil {
			return err
		}
		before, err := w.Resets(words[2])
		if err != nil {
			return err
		}
		for i, family := range s.families {
			from, err := fixture.Address(family, words[1])
			if err != nil {
				return err
			}
			if err := w.Stray(netip.AddrPortFrom(from, fixture.EndpointPort), all[i].Answer().Client); err != nil {
				return err
			}
		}
		if err := sleep(ctx, strayRest); err != nil {
			return err
		}
		after, err := w.Resets(words[2])
		if err == nil && after != before {
			err = fmt.Errorf("%s has sent %d resets, want none", words[2], after-before)
		}
		return err
	}), nil
}

// UDP clients that keep their socket, and so their port: the kernel goes on to translate as it did
// the first datagram.
var _ = define("flow", verb{usage: `flow f1 opens p1 cluster/udp [a] (to endpoint a), flow f1 gets b, flow f1 gets refused,
flow f1 keeps (the same endpoint, by the same entry of the node), or flow f1 loses (that entry)`, kernel: true, parse: parseFlow})

// flows are the flows of one name, one per family.
type flows []*flow

// flow is one of these.
type flow struct {
	*netnstest.Flow
	question fixture.Question
	// endpoint is the last one that answered, entry the node's conntrack entry then.
	endpoint string
	entry    netnstest.Entry
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
			q := fixture.Question{Family: family, From: words[0], To: at, Protocol: service.UDP, Patience: askPatience}
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

// openFlow opens flows until one leads to the wanted endpoint, if there is one.
func openFlow(ctx context.Context, w *network.World, q fixture.Question, want *outcome) (*flow, error) {
	var last error
	for range attemptsMax {
		host, err := w.Host(q.From)
		if err != nil {
			return nil, err
		}
		opened, err := netnstest.OpenFlow(ctx, host, netip.AddrPort{}, q.To)
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

// get sends one datagram, and fails unless it ends as wanted.
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
	f.endpoint, f.entry = got.Name, netnstest.Entry{}
	if got.Fate == fixture.Answered {
		f.entry, err = w.EntryOf(service.UDP, f.Local(), q.To)
	}
	return err
}
