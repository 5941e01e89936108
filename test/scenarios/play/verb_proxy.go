// SPDX-License-Identifier: Apache-2.0

package play

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-proxy/sluice/test/scenarios/fixture"
	"github.com/sluice-proxy/sluice/test/scenarios/network"
)

// The verbs about the process of the proxy. The first question starts it if nothing else does.
var (
	_ = define("start", verb{usage: "start (and wait until it has applied every change)", kernel: true, parse: alone(func(ctx context.Context, s *Stage) error {
		if s.stopped {
			s.running, s.stopped = false, false
		}
		return s.ready(ctx)
	})})
	_ = define("stop", verb{usage: "stop (with SIGTERM; its status has to be 0)", kernel: true, parse: alone(ended((*network.World).Stop))})
	_ = define("kill", verb{usage: "kill (with SIGKILL)", kernel: true, parse: alone(ended((*network.World).Kill))})
	_ = define("settle", verb{usage: "settle (wait until every change has taken effect)", parse: alone(func(ctx context.Context, s *Stage) error {
		return s.ready(ctx)
	})})
	_ = define("unsettled", verb{usage: "unsettled (go on without waiting for earlier changes)", parse: alone(func(_ context.Context, s *Stage) error {
		s.changed = false
		return nil
	})})
	_ = define("exits", verb{usage: "exits 1 (start the proxy, which ends by itself with this status)", kernel: true, parse: parseExits})
)

// alone is a verb without words behind it.
func alone(f func(ctx context.Context, s *Stage) error) func([]string) (statement, error) {
	return func(words []string) (statement, error) {
		if len(words) > 0 {
			return nil, errors.New("want nothing behind the verb")
		}
		return act(f), nil
	}
}

// ended ends the proxy. Questions after it test the rules alone and do not wait for later changes.
func ended(end func(*network.World) error) func(context.Context, *Stage) error {
	return func(ctx context.Context, s *Stage) error {
		w, err := s.kernel()
		if err != nil {
			return err
		}
		if err := s.ready(ctx); err != nil {
			return err
		}
		s.stopped = true
		return end(w)
	}
}

func parseExits(words []string) (statement, error) {
	if len(words) != 1 {
		return nil, errors.New("want a status")
	}
	status, err := strconv.Atoi(words[0])
	if err != nil {
		return nil, err
	}
	const exitMax = 60 * time.Second
	return act(func(ctx context.Context, s *Stage) error {
		w, err := s.kernel()
		if err != nil {
			return err
		}
		if !s.running || s.stopped {
			if err := w.Start(); err != nil {
				return err
			}
		}
		s.running, s.stopped = true, true
		ctx, cancel := context.WithTimeout(ctx, exitMax)
		defer cancel()
		return w.AwaitExit(ctx, status)
	}), nil
}

// The verbs about the proxy's surroundings: its start, its configuration file, its API server. They
// wait for nothing.
var (
	_ = define("launch", verb{usage: "launch (start the proxy, and do not wait for anything)", kernel: true, parse: alone(launch)})
	_ = define("next", verb{usage: "next --proxy-mode=iptables (flags of proxies that start from now on)", kernel: true, parse: parseNext})
	_ = define("environment", verb{usage: "environment XTABLES_LOCKFILE=$dir/lock (of proxies that start from now on)", kernel: true, parse: parseEnvironment})
	_ = define("under", verb{usage: "under setpriv --bounding-set=-all,+net_admin (a program that becomes the proxy)", kernel: true, parse: parseUnder})
	_ = define("config", verb{usage: `config written "iptables: {masqueradeAll: true}" (lines of the proxy's file), or config mounted … (by links, as a ConfigMap)`, kernel: true, parse: parseConfig})
	_ = define("api", verb{usage: "api down, or api up", kernel: true, parse: parseAPI})
	_ = define("unlisten", verb{usage: "unlisten node:30080 (end the server of listen)", kernel: true, parse: parseUnlisten})
)

// inWorld is a statement in the real world that runs immediately.
func inWorld(f func(w *network.World) error) statement {
	return act(func(_ context.Context, s *Stage) error {
		w, err := s.kernel()
		if err != nil {
			return err
		}
		return f(w)
	})
}

func launch(_ context.Context, s *Stage) error {
	if err := s.Start(); err != nil {
		return err
	}
	s.running, s.stopped, s.changed = true, false, false
	return nil
}

func parseNext(words []string) (statement, error) {
	flags := make(map[string]string)
	for _, word := range words {
		name, value, err := fixture.ParseFlag(word)
		if err != nil {
			return nil, err
		}
		flags[name] = value
	}
	return inWorld(func(w *network.World) error {
		for name, value := range flags {
			w.SetFlag(name, value)
		}
		return nil
	}), nil
}

func parseEnvironment(words []string) (statement, error) {
	if len(words) != 1 || !strings.Contains(words[0], "=") {
		return nil, errors.New("want NAME=VALUE")
	}
	return inWorld(func(w *network.World) error { w.SetEnvironment(words[0]); return nil }), nil
}

func parseUnder(words []string) (statement, error) {
	return inWorld(func(w *network.World) error { w.StartUnder(words); return nil }), nil
}

func parseConfig(words []string) (statement, error) {
	switch {
	case len(words) > 0 && words[0] == "written":
		return inWorld(func(w *network.World) error { return w.WriteConfig(words[1:]) }), nil
	case len(words) > 0 && words[0] == "mounted":
		return inWorld(func(w *network.World) error { return w.MountConfig(words[1:]) }), nil
	default:
		return nil, errors.New("want written or mounted, and lines of YAML")
	}
}

func parseAPI(words []string) (statement, error) {
	switch strings.Join(words, " ") {
	case "down":
		return inWorld(func(w *network.World) error { return w.API.Stop() }), nil
	case "up":
		return inWorld(func(w *network.World) error { return w.API.Start() }), nil
	default:
		return nil, errors.New("want down or up")
	}
}

func parseUnlisten(words []string) (statement, error) {
	return atPort(words, (*network.World).Leave)
}

// The log of the proxy that was started last.
var _ = define("log", verb{usage: `log has "msg":"started" (a regular expression for a line), or log lacks REGEXP`, kernel: true, parse: parseLog})

// search is for a line that must be there, or must not.
type search struct {
	pattern *regexp.Regexp
	want    bool
}

// parseSearch understands "has REGEXP" and "lacks REGEXP", and the plural of both.
func parseSearch(words []string) (search, error) {
	if len(words) < 2 || !slices.Contains([]string{"has", "lacks", "have", "lack"}, words[0]) {
		return search{}, errors.New("want has or lacks, and a regular expression")
	}
	pattern, err := regexp.Compile(strings.Join(words[1:], " "))
	return search{pattern, strings.HasPrefix(words[0], "ha")}, err
}

// judge looks through the lines of a text.
func (s search) judge(what, text string) error {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	for _, line := range lines {
		if s.pattern.MatchString(line) {
			if s.want {
				return nil
			}
			return fmt.Errorf("a line of %s matches %v: %s", what, s.pattern, strings.TrimSpace(line))
		}
	}
	if !s.want {
		return nil
	}
	const shown = 5
	return fmt.Errorf("no line of %s matches %v; the last of %d lines are\n%s",
		what, s.pattern, len(lines), strings.Join(lines[max(0, len(lines)-shown):], "\n"))
}

// statement searches the text that read returns, until it holds.
func (s search) statement(what string, read func(context.Context, *network.World) (string, error)) statement {
	return settled(func(ctx context.Context, _ *Stage, w *network.World) error {
		return hold(ctx, func() error {
			text, err := read(ctx, w)
			if err != nil {
				return err
			}
			return s.judge(what, text)
		})
	})
}

func parseLog(words []string) (statement, error) {
	wanted, err := parseSearch(words)
	return wanted.statement("the log", func(_ context.Context, w *network.World) (string, error) {
		if w.Process() == nil {
			return "", errors.New("the proxy was not started")
		}
		text, err := os.ReadFile(w.Process().LogFile())
		return string(text), err
	}), err
}
