package play

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/sluice-proxy/sluice/test/scenarios/network"
)

// The verbs about what surrounds the process of the proxy: how it is started, its
// file, its API server. They wait for nothing.
var (
	_ = define("launch", verb{usage: "launch (start the proxy, and do not wait until it has obeyed)", kernel: true, parse: alone(launch)})
	_ = define("next", verb{usage: "next --proxy-mode=iptables (flags of the proxies that are started from now on)", kernel: true, parse: parseNext})
	_ = define("environment", verb{usage: "environment XTABLES_LOCKFILE=$dir/lock (of the proxies that are started from now on)", kernel: true, parse: parseEnvironment})
	_ = define("under", verb{usage: "under setpriv --bounding-set=-all,+net_admin (a program that becomes the proxy)", kernel: true, parse: parseUnder})
	_ = define("config", verb{usage: `config written "iptables: {masqueradeAll: true}" (lines of the proxy's file), or config mounted … (by links, as a ConfigMap)`, kernel: true, parse: parseConfig})
	_ = define("api", verb{usage: "api down, or api up", kernel: true, parse: parseAPI})
	_ = define("unlisten", verb{usage: "unlisten node:30080 (end what listen has begun)", kernel: true, parse: parseUnlisten})
)

// inWorld is a statement in the real world at once.
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
		name, value, ok := strings.Cut(strings.TrimPrefix(word, "--"), "=")
		if !ok || !strings.HasPrefix(word, "--") {
			return nil, fmt.Errorf("%q: want --NAME=VALUE", word)
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
