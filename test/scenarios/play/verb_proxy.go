package play

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/sluice-proxy/sluice/test/scenarios/network"
)

// The verbs about the process of the proxy. The first question starts it if nothing
// else does.
var (
	_ = define("start", verb{usage: "start (and wait until it has obeyed)", kernel: true, parse: alone(func(ctx context.Context, s *Stage) error {
		if s.stopped {
			s.running, s.stopped = false, false
		}
		return s.ready(ctx)
	})})
	_ = define("stop", verb{usage: "stop (with SIGTERM; its status has to be 0)", kernel: true, parse: alone(ended((*network.World).Stop))})
	_ = define("kill", verb{usage: "kill (with SIGKILL)", kernel: true, parse: alone(ended((*network.World).Kill))})
	_ = define("settle", verb{usage: "settle (wait until everything so far is obeyed)", parse: alone(func(ctx context.Context, s *Stage) error {
		return s.ready(ctx)
	})})
	_ = define("unsettled", verb{usage: "unsettled (go on without waiting for what was said before)", parse: alone(func(_ context.Context, s *Stage) error {
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

// ended ends the proxy. What the API says from then on is not obeyed, and questions
// do not wait for it: they ask what the rules do alone.
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
		return w.AwaitExit(ctx, status, exitMax)
	}), nil
}
