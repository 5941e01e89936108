// SPDX-License-Identifier: Apache-2.0

package play

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-proxy/sluice/test/scenarios/fixture"
	"github.com/sluice-proxy/sluice/test/scenarios/network"
)

// The verbs that change the node or look at it.
var (
	_ = define("run", verb{usage: "run iptables -P FORWARD DROP", kernel: true, parse: parseRun})
	_ = define("listen", verb{usage: "listen node:30080 (a server that answers as host)", kernel: true, parse: parseListen})
	_ = define("sleep", verb{usage: "sleep 15s", kernel: true, parse: parseSleep})
	_ = define("rules", verb{usage: `rules have REGEXP, or rules lack REGEXP; a line of iptables-save, ip6tables-save or nft list ruleset`, kernel: true, parse: parseRules})
)

// kernel returns the world if it has a real kernel.
func (s *Stage) kernel() (*network.World, error) {
	w, ok := s.World.(*network.World)
	if !ok {
		return nil, errors.New("this needs a real kernel")
	}
	return w, nil
}

// readyKernel is kernel, once every change so far has taken effect in a proxy that runs.
func (s *Stage) readyKernel(ctx context.Context) (*network.World, error) {
	w, err := s.kernel()
	if err == nil && s.running {
		err = s.ready(ctx)
	}
	return w, err
}

// parseRun runs one program on the node, which has to end with status 0: before the proxy starts,
// or once every change before it has taken effect.
func parseRun(words []string) (statement, error) {
	if len(words) == 0 {
		return nil, errors.New("want a program")
	}
	return act(func(ctx context.Context, s *Stage) error {
		w, err := s.readyKernel(ctx)
		if err != nil {
			return err
		}
		_, err = w.Run(ctx, words[0], words[1:]...)
		return err
	}), nil
}

// settled is a statement in the real world that runs once every change before it has taken effect.
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
	wanted, err := parseSearch(words)
	return wanted.statement("the rules", func(ctx context.Context, w *network.World) (string, error) { return w.Rules(ctx) }), err
}

// The size of a machine's conntrack table.
var _ = define("sizes", verb{
	usage:  "sizes 4 131072 [from 4096/4096] (processors, and the largest number of connections), or sizes 4 131072/32768 (with the buckets)",
	kernel: true, parse: parseSizes,
})

func parseSizes(words []string) (statement, error) {
	before := network.TableSize{Max: "4096", Hash: "4096"}
	switch {
	case len(words) == 4 && words[2] == "from":
		before.Max, before.Hash, _ = strings.Cut(words[3], "/")
	case len(words) != 2:
		return nil, errors.New("want the number of processors and that of connections, and perhaps from and the numbers before")
	}
	processors, err := strconv.Atoi(words[0])
	if err != nil {
		return nil, err
	}
	size, buckets, _ := strings.Cut(words[1], "/")
	return act(func(ctx context.Context, s *Stage) error {
		w, err := s.kernel()
		if err != nil {
			return err
		}
		got, err := w.TableSize(ctx, processors, before)
		if err == nil && (got.Max != size || buckets != "" && got.Hash != buckets) {
			err = fmt.Errorf("with %d processors the size is set to %+v, want %s", processors, got, words[1])
		}
		return err
	}), nil
}

// A condition to wait for, which a program on the node checks.
var _ = define("await", verb{usage: `await 30s sh -c "! ipvsadm -Ln | grep 10.244.1.10" (until its status is 0)`, kernel: true, parse: parseAwait})

// awaitStep is the pause between two runs of the program.
const awaitStep = 500 * time.Millisecond

func parseAwait(words []string) (statement, error) {
	if len(words) < 2 {
		return nil, errors.New("want a time and a program")
	}
	limit, err := time.ParseDuration(words[0])
	if err != nil {
		return nil, err
	}
	return settled(func(ctx context.Context, _ *Stage, w *network.World) error {
		limit := slowness * limit
		for deadline := time.Now().Add(limit); ; {
			_, err := w.Run(ctx, words[1], words[2:]...)
			if err == nil {
				return nil
			}
			if time.Now().After(deadline) {
				return fmt.Errorf("not within %v: %w", limit, err)
			}
			if err := sleep(ctx, awaitStep); err != nil {
				return err
			}
		}
	}), nil
}

// The policy of a host firewall for packets that match no rule.
var _ = define("policy", verb{usage: "policy FORWARD DROP (table filter, by the proxy's variant of iptables)", kernel: true, parse: parsePolicy})

func parsePolicy(words []string) (statement, error) {
	if len(words) != 2 || !slices.Contains([]string{"INPUT", "FORWARD", "OUTPUT"}, words[0]) || !slices.Contains([]string{"ACCEPT", "DROP"}, words[1]) {
		return nil, errors.New("want INPUT, FORWARD or OUTPUT, and ACCEPT or DROP")
	}
	return settled(func(ctx context.Context, _ *Stage, w *network.World) error {
		return w.SetPolicy(ctx, words[0], words[1])
	}), nil
}

// The rules of other programs on the node. They are loaded before the proxy starts, or beside it.
var _ = define("others", verb{usage: "others docker (load its rules, again if they are loaded), then others kept", kernel: true, parse: parseOthers})

func parseOthers(words []string) (statement, error) {
	if len(words) != 1 {
		return nil, errors.New("want the name of a program, or kept")
	}
	return act(func(ctx context.Context, s *Stage) error {
		w, err := s.readyKernel(ctx)
		if err != nil {
			return err
		}
		if words[0] == "kept" {
			return w.OthersKept(ctx)
		}
		return w.LoadOthers(ctx, words[0])
	}), nil
}

// The server in a pod ends, so that the pod refuses connections, and begins again.
var _ = define("backend", verb{usage: "backend a ends, or backend a begins", kernel: true, parse: parseBackend})

func parseBackend(words []string) (statement, error) {
	if len(words) != 2 || (words[1] != "ends" && words[1] != "begins") {
		return nil, errors.New("want NAME ends, or NAME begins")
	}
	name, ends := words[0], words[1] == "ends"
	if !known(name) {
		return nil, fmt.Errorf("%q: want an endpoint", name)
	}
	return settled(func(_ context.Context, s *Stage, w *network.World) error {
		var errs []error
		for _, family := range s.families {
			at := netip.AddrPortFrom(fixture.MustAddress(family, name), fixture.EndpointPort)
			if ends {
				errs = append(errs, w.Leave(at))
			} else {
				errs = append(errs, w.Serve(name, name, at))
			}
		}
		return errors.Join(errs...)
	}), nil
}

// One echo request. The port of the target does not matter.
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
	return askPatience
}

func pingText(got fixture.Fate) string {
	for text, fate := range pingFates {
		if fate == got {
			return text
		}
	}
	return "something else"
}
