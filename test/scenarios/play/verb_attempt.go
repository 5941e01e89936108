// SPDX-License-Identifier: Apache-2.0

package play

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"syscall"
	"time"

	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/netnstest"
	"github.com/sluice-proxy/sluice/test/scenarios/fixture"
	"github.com/sluice-proxy/sluice/test/scenarios/network"
)

// TCP connections that begin before the statements that decide how they end. The client sends its
// SYN again after 1, 3 and 7 seconds.
var _ = define("attempt", verb{usage: "attempt one begins x external (and goes on), then attempt one ends a, or ends refused", kernel: true, parse: parseAttempt})

// attemptPatience is how long a client goes on.
const attemptPatience = time.Minute

// attempts are the connections of one name, one per family.
type attempts []*attempt

// attempt is one of these. Its result comes once.
type attempt struct {
	question fixture.Question
	ended    chan attempted
}

type attempted struct {
	answer fixture.Answer
	err    error
}

func parseAttempt(words []string) (statement, error) {
	switch {
	case len(words) == 4 && words[1] == "begins":
		to, err := parseTarget(words[3])
		return settled(func(ctx context.Context, s *Stage, w *network.World) error {
			return beginAttempts(ctx, s, w, words[0], words[2], to)
		}), err
	case len(words) > 2 && words[1] == "ends":
		want, err := parseOutcome(words[2:])
		return settled(func(_ context.Context, s *Stage, _ *network.World) error {
			all, err := kept[attempts](s, words[0])
			if err != nil {
				return err
			}
			for _, a := range all {
				got := <-a.ended
				if got.err != nil {
					return got.err
				}
				if !want.allows(a.question, got.answer) {
					return fmt.Errorf("%v: got %v, want %v", a.question, got.answer, want)
				}
			}
			return nil
		}), err
	default:
		return nil, errors.New("want NAME begins CLIENT TARGET, or NAME ends OUTCOME")
	}
}

// beginAttempts returns when the node has seen the first SYN of each connection.
func beginAttempts(ctx context.Context, s *Stage, w *network.World, name, client string, to target) error {
	host, err := w.Host(client)
	if err != nil {
		return err
	}
	var all attempts
	for _, family := range s.families {
		at, err := to.resolve(s, family)
		if err != nil {
			return err
		}
		a := &attempt{
			question: fixture.Question{Family: family, From: client, To: at, Protocol: service.TCP}, ended: make(chan attempted, 1),
		}
		going, cancel := context.WithTimeout(ctx, attemptPatience)
		s.atEnd(func() error { cancel(); return nil })
		go func() {
			got, err := netnstest.AskFrom(going, host, "tcp", netip.AddrPort{}, at)
			answer, err := w.Outcome(a.question, got, err)
			a.ended <- attempted{answer, err}
		}()
		err = hold(ctx, func() error {
			seen, err := netnstest.Conntrack(w.Node())
			for _, e := range seen {
				if e.Destination == at {
					return nil
				}
			}
			return errors.Join(err, fmt.Errorf("%v: the node has seen no packet of it", a.question))
		})
		if err != nil {
			return err
		}
		all = append(all, a)
	}
	keep(s, name, all)
	return nil
}

// A connection that somebody accepts and then ends: a proxy that cannot reach the endpoint.
var _ = define("cut", verb{usage: "cut node loopback:30080 (the connection is closed or reset, without data)", kernel: true, parse: parseCut})

func parseCut(words []string) (statement, error) {
	if len(words) != 2 {
		return nil, errors.New("want CLIENT TARGET")
	}
	to, err := parseTarget(words[1])
	return settled(func(ctx context.Context, s *Stage, w *network.World) error {
		host, err := w.Host(words[0])
		if err != nil {
			return err
		}
		for _, family := range s.families {
			at, err := to.resolve(s, family)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(ctx, attemptPatience)
			answer, err := netnstest.AskFrom(ctx, host, "tcp", netip.AddrPort{}, at)
			cancel()
			if !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
				return fmt.Errorf("%s to %s: got %+v, %v, want the connection to be cut", words[0], at, answer, err)
			}
		}
		return nil
	}), err
}
