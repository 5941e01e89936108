package play

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-proxy/sluice/test/scenarios/fixture"
	"github.com/sluice-proxy/sluice/test/scenarios/network"
)

// One echo request, whose port nobody counts.
var _ = define("ping", verb{usage: "ping p1 cluster refused, or answered, or silence", kernel: true, parse: parsePing})

var pingFates = map[string]fixture.Fate{"answered": fixture.Answered, "refused": fixture.Refused, "silence": fixture.Silent}

func parsePing(words []string) (statement, error) {
	if len(words) != 3 {
		return nil, errors.New("want CLIENT TARGET OUTCOME")
	}
	to, err := parseTarget(words[1])
	if err != nil {
		return nil, err
	}
	want, ok := pingFates[words[2]]
	if !ok {
		return nil, fmt.Errorf("%q: want answered, refused or silence", words[2])
	}
	return settled(func(ctx context.Context, s *Stage, w *network.World) error {
		var all errgroup.Group
		for _, family := range s.families {
			all.Go(func() error {
				at, err := to.resolve(s, family)
				if err != nil {
					return err
				}
				ctx, cancel := context.WithTimeout(ctx, patienceFor(want))
				defer cancel()
				got, err := w.Ping(ctx, words[0], at.Addr())
				if err == nil && got != want {
					err = fmt.Errorf("the echo request to %s: %s, want %s", at.Addr(), pingText(got), words[2])
				}
				return err
			})
		}
		return all.Wait()
	}), nil
}

func patienceFor(want fixture.Fate) time.Duration {
	if want == fixture.Silent {
		return silencePatience
	}
	return answerPatience
}

func pingText(got fixture.Fate) string {
	for text, fate := range pingFates {
		if fate == got {
			return text
		}
	}
	return "something else"
}
