package play

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/scenarios/fixture"
	"github.com/sluice-proxy/sluice/test/scenarios/network"
)

// TCP connections that stay open: to see what changes do to them.
var _ = define("session", verb{usage: "session s1 opens p1 cluster a (to endpoint a), then session s1 lives, or dies, or ends (by a reset); session many*200 opens … opens as many", kernel: true, parse: parseSession})

// sessions are those of one name, one per family, or as many per family as a star
// behind the name says.
type sessions []*netns.Session

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

// times understands NAME and NAME*COUNT.
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

// openSessions opens connections until as many as are wanted have ended at a wanted
// endpoint.
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

func openTo(ctx context.Context, w *network.World, host *netns.Namespace, q fixture.Question, want outcome) (*netns.Session, error) {
	for range attemptsMax {
		opened, err := host.ConnectFrom(ctx, netip.AddrPort{}, q.To)
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

// endSessions ends each connection by a reset, so that nobody on the way keeps it.
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

// echo talks on each connection, and wants it to work, or not to.
func echo(ctx context.Context, s *Stage, name string, lives bool) error {
	all, err := kept[sessions](s, name)
	if err != nil {
		return err
	}
	for _, session := range all {
		ctx, cancel := context.WithTimeout(ctx, echoMax)
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
