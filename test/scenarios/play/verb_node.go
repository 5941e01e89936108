package play

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-proxy/sluice/test/scenarios/fixture"
	"github.com/sluice-proxy/sluice/test/scenarios/network"
)

// The verbs that do something to the node, or look at it.
var (
	_ = define("run", verb{usage: "run iptables -P FORWARD DROP", kernel: true, parse: parseRun})
	_ = define("listen", verb{usage: "listen node:30080 (who answers there is host)", kernel: true, parse: parseListen})
	_ = define("sleep", verb{usage: "sleep 15s", kernel: true, parse: parseSleep})
	_ = define("rules", verb{usage: `rules have REGEXP, or rules lack REGEXP; a line of iptables-save, ip6tables-save or nft list ruleset`, kernel: true, parse: parseRules})
)

// kernel hands the real world to what works in no other.
func (s *Stage) kernel() (*network.World, error) {
	w, ok := s.World.(*network.World)
	if !ok {
		return nil, errors.New("this needs a real kernel")
	}
	return w, nil
}

// parseRun runs one program on the node, which has to end with status 0: before the
// proxy starts, or when it has obeyed all that was said before.
func parseRun(words []string) (statement, error) {
	if len(words) == 0 {
		return nil, errors.New("want a program")
	}
	return act(func(ctx context.Context, s *Stage) error {
		w, err := s.kernel()
		if err != nil {
			return err
		}
		if s.running {
			if err := s.ready(ctx); err != nil {
				return err
			}
		}
		_, err = w.Run(ctx, words[0], words[1:]...)
		return err
	}), nil
}

// settled is a statement in the real world for which the proxy has to run, and to
// have obeyed all that was said before.
func settled(f func(ctx context.Context, s *Stage, w *network.World) error) statement {
	return act(func(ctx context.Context, s *Stage) error {
		w, err := s.kernel()
		if err != nil {
			return err
		}
		if err := s.ready(ctx); err != nil {
			return err
		}
		return f(ctx, s, w)
	})
}

func parseListen(words []string) (statement, error) {
	return atPort(words, func(w *network.World, at netip.AddrPort) error { return w.Serve(fixture.Host, "node", at) })
}

// atPort does something at NAME:PORT, in each family.
func atPort(words []string, do func(*network.World, netip.AddrPort) error) (statement, error) {
	if len(words) != 1 {
		return nil, errors.New("want NAME:PORT")
	}
	name, text, _ := strings.Cut(words[0], ":")
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return nil, fmt.Errorf("port: %w", err)
	}
	return act(func(_ context.Context, s *Stage) error {
		w, err := s.kernel()
		if err != nil {
			return err
		}
		for _, family := range s.families {
			at, err := fixture.Address(family, name)
			if err != nil {
				return err
			}
			if err := do(w, netip.AddrPortFrom(at, uint16(port))); err != nil {
				return err
			}
		}
		return nil
	}), nil
}

func parseSleep(words []string) (statement, error) {
	if len(words) != 1 {
		return nil, errors.New("want a duration")
	}
	d, err := time.ParseDuration(words[0])
	return settled(func(ctx context.Context, _ *Stage, _ *network.World) error { return sleep(ctx, d) }), err
}

func parseRules(words []string) (statement, error) {
	if len(words) < 2 || (words[0] != "have" && words[0] != "lack") {
		return nil, errors.New("want have or lack, and a regular expression")
	}
	pattern, err := regexp.Compile(strings.Join(words[1:], " "))
	if err != nil {
		return nil, err
	}
	want := words[0] == "have"
	return settled(func(ctx context.Context, s *Stage, w *network.World) error {
		return hold(ctx, func() error {
			line, err := w.FindRule(ctx, pattern)
			switch {
			case err != nil:
				return err
			case want && line == "":
				return fmt.Errorf("no rule fits %v", pattern)
			case !want && line != "":
				return fmt.Errorf("a rule fits %v: %s", pattern, line)
			default:
				return nil
			}
		})
	}), nil
}
