// SPDX-License-Identifier: Apache-2.0

package play

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/netnstest"
	"github.com/sluice-proxy/sluice/test/scenarios/fixture"
	"github.com/sluice-proxy/sluice/test/scenarios/network"
)

// Connections that one client makes one after another, in each family, while the statements in
// between run. Each must be answered. If endpoints are named, each of them must answer, and no
// other.
var _ = define("load", verb{usage: "load one begins p1 cluster, then load one ends a b", kernel: true, parse: parseLoad})

// load is a running client. Its counts are read when it has stopped.
type load struct {
	stop func()
	// counts has one element per family.
	counts []*loadCount
}

// loadCount is what the connections of one family met.
type loadCount struct {
	question fixture.Question
	mu       sync.Mutex
	seen     map[fixture.Answer]int
	// err is the first error that is no outcome.
	err error
	// slowest is the longest wait for an outcome.
	slowest time.Duration
}

const (
	// loadPause is the time between two connections.
	loadPause = 2 * time.Millisecond
	// loadMin is how many connections there have to be: fewer would prove nothing.
	loadMin = 20
)

func parseLoad(words []string) (statement, error) {
	switch {
	case len(words) == 4 && words[1] == "begins":
		to, err := parseTarget(words[3])
		return settled(func(ctx context.Context, s *Stage, w *network.World) error {
			return beginLoad(ctx, s, w, words[0], words[2], to)
		}), err
	case len(words) >= 2 && words[1] == "ends":
		want := outcome{}
		if len(words) > 2 {
			var err error
			if want, err = parseOutcome(words[2:]); err != nil {
				return nil, err
			}
			if want.fate != fixture.Answered {
				return nil, errors.New("load: every connection has to be answered")
			}
		}
		return settled(func(ctx context.Context, s *Stage, _ *network.World) error {
			return endLoad(ctx, s, words[0], want)
		}), nil
	default:
		return nil, errors.New("want NAME begins CLIENT TARGET, or NAME ends [ENDPOINT…]")
	}
}

func beginLoad(ctx context.Context, s *Stage, w *network.World, name, client string, to target) error {
	host, err := w.Host(client)
	if err != nil {
		return err
	}
	l := &load{}
	config := netnstest.LoadConfig{Client: host, Pause: loadPause, Patience: answerPatience}
	for _, family := range s.families {
		at, err := to.resolve(s, family)
		if err != nil {
			return err
		}
		config.Targets = append(config.Targets, netnstest.Target{Network: to.protocol.String(), Addr: at})
		q := fixture.Question{Family: family, From: client, To: at, Protocol: to.protocol}
		l.counts = append(l.counts, &loadCount{question: q, seen: make(map[fixture.Answer]int)})
	}
	config.Note = func(e netnstest.Exchange) { l.counts[e.Target].note(w, e) }
	running, err := netnstest.StartLoad(ctx, config)
	if err != nil {
		return err
	}
	l.stop = sync.OnceFunc(running.Stop)
	s.atEnd(func() error { l.stop(); return nil })
	keep(s, name, l)
	return nil
}

func (c *loadCount) note(w *network.World, e netnstest.Exchange) {
	got, err := w.Outcome(c.question, e.Answer, e.Err)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.slowest = max(c.slowest, e.Ended.Sub(e.Began))
	switch {
	case err == nil:
		c.seen[got]++
	case c.err == nil:
		c.err = err
	}
}

// endLoad stops the client when it has made enough connections, and each wanted endpoint has answered one, which takes longer
// in an emulated machine. It judges what the client met.
func endLoad(ctx context.Context, s *Stage, name string, want outcome) error {
	l, err := kept[*load](s, name)
	if err != nil {
		return err
	}
	for deadline := time.Now().Add(settleMax); slices.ContainsFunc(l.counts, func(c *loadCount) bool { return c.few(want) }) && time.Now().Before(deadline); {
		if err := sleep(ctx, loadPause); err != nil {
			return err
		}
	}
	l.stop()
	var errs []error
	for _, c := range l.counts {
		errs = append(errs, c.judge(want))
	}
	return errors.Join(errs...)
}

// few reports whether more connections are needed to prove something. After an error, none are.
func (c *loadCount) few(want outcome) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err == nil && (c.total() < loadMin || len(want.names) > 0 && !want.complete(c.seen))
}

// total returns the number of connections with an outcome.
func (c *loadCount) total() (n int) {
	for _, of := range c.seen {
		n += of
	}
	return n
}

func (c *loadCount) judge(want outcome) error {
	total := c.total()
	for answer, n := range c.seen {
		if answer.Fate != fixture.Answered || (len(want.names) > 0 && !want.allows(c.question, answer)) {
			return fmt.Errorf("%v: %d connections got %v, the slowest in %v: %v", c.question, n, answer, c.slowest, c.summary())
		}
	}
	switch {
	case c.err != nil:
		return fmt.Errorf("%v: after %d connections: %w", c.question, total, c.err)
	case total < loadMin:
		return fmt.Errorf("%v: only %d connections, want %d", c.question, total, loadMin)
	case len(want.names) > 0 && !want.complete(c.seen):
		return fmt.Errorf("%v: saw only %v, want %v", c.question, c.summary(), want)
	}
	return nil
}

// summary lists the answers with their counts.
func (c *loadCount) summary() []string {
	var all []string
	for answer, n := range c.seen {
		all = append(all, fmt.Sprintf("%d× %v", n, answer))
	}
	slices.Sort(all)
	return all
}

// Clients that stay with one endpoint. CLIENT*N is N addresses of a client, each of which stays
// with one endpoint. With 50 or more, every named endpoint has to be used. The endpoint of each
// address is stored under the name, and has to be the same the next time.
var (
	_ = define("sticky", verb{usage: "sticky first p1 cluster a b c x50, or sticky many p1*50 cluster a b c", kernel: true, parse: parseSticky})
	_ = define("moved", verb{usage: "moved many p1*50 cluster a b c (some address sees another endpoint than before)", kernel: true, parse: parseMoved})
)

// stickyTimes is the default number of connections per address.
const stickyTimes = 5

// allSeen is the number of addresses of which at least one must use each endpoint. One of three
// endpoints stays unused with a probability of 5e-9.
const allSeen = 50

// crowdCompared is how many addresses of a crowd have their answers compared: what a crowd
// remembers has a time limit, and all differ in nothing but the address.
const crowdCompared = 2

// crowd is the clients and their target, which both verbs share.
type crowd struct {
	name, client string
	// count is the number of addresses, 0 for the client's own alone.
	count  int
	target target
	want   outcome
	times  int
}

// choice is the endpoint of each address of a client.
type choice map[netip.Addr]string

func parseCrowd(words []string) (crowd, error) {
	if len(words) < 4 {
		return crowd{}, errors.New("want NAME CLIENT[*N] TARGET ENDPOINT…")
	}
	c := crowd{name: words[0]}
	var number string
	var many bool
	if c.client, number, many = strings.Cut(words[1], "*"); many {
		var err error
		if c.count, err = strconv.Atoi(number); err != nil || c.count < 1 {
			return c, fmt.Errorf("%s: want CLIENT*N", words[1])
		}
	}
	var err error
	if c.target, err = parseTarget(words[2]); err != nil {
		return c, err
	}
	rest := words[3:]
	var s spread
	if s, rest, err = parseSpread(rest); err != nil {
		return c, err
	}
	if c.times = s.times; c.times == 0 {
		c.times = stickyTimes
	}
	c.want, err = parseOutcome(rest)
	if err == nil && c.want.fate != fixture.Answered {
		err = errors.New("want endpoints")
	}
	return c, err
}

func parseSticky(words []string) (statement, error) {
	c, err := parseCrowd(words)
	return c.each(func(ctx context.Context, s *Stage, w *network.World, family service.Family) error {
		return c.stay(ctx, s, w, family)
	}), err
}

func parseMoved(words []string) (statement, error) {
	c, err := parseCrowd(words)
	return c.each(func(ctx context.Context, s *Stage, w *network.World, family service.Family) error {
		before, err := kept[choice](s, c.keptAs(family))
		if err != nil {
			return err
		}
		now, err := c.ask(ctx, w, s, family, 1)
		if err == nil && maps.Equal(before, now) {
			err = fmt.Errorf("all %d addresses of %s see the same endpoints as before, want others for some", len(now), c.client)
		}
		return err
	}), err
}

// each runs a function in one family after the other, because stored values have one owner.
func (c crowd) each(f func(context.Context, *Stage, *network.World, service.Family) error) statement {
	return settled(func(ctx context.Context, s *Stage, w *network.World) error {
		for _, family := range s.families {
			if err := f(ctx, s, w, family); err != nil {
				return err
			}
		}
		return nil
	})
}

func (c crowd) keptAs(family service.Family) string { return c.name + " " + family.String() }

// stay fails unless each address sees one endpoint, the same as before.
func (c crowd) stay(ctx context.Context, s *Stage, w *network.World, family service.Family) error {
	before, err := kept[choice](s, c.keptAs(family))
	known := err == nil // the first time, there is nothing to compare with
	var now choice
	if err := hold(ctx, func() (err error) {
		now, err = c.ask(ctx, w, s, family, c.times)
		return err
	}); err != nil {
		return err
	}
	if known {
		for a, name := range now {
			if before[a] != name {
				return fmt.Errorf("%s sees %s, and saw %s before (address %v)", c.client, name, before[a], a)
			}
		}
	}
	keep(s, c.keptAs(family), now)
	return nil
}

// ask makes a number of connections from each address.
func (c crowd) ask(ctx context.Context, w *network.World, s *Stage, family service.Family, times int) (choice, error) {
	addresses := []netip.Addr{{}}
	if c.count > 0 {
		var err error
		if addresses, err = w.Sources(c.client, family, c.count); err != nil {
			return nil, err
		}
	}
	to, err := c.target.resolve(s, family)
	if err != nil {
		return nil, err
	}
	found := make([]string, len(addresses))
	var all errgroup.Group
	all.SetLimit(8)
	for i, a := range addresses {
		q := fixture.Question{Family: family, From: c.client, To: to, Protocol: c.target.protocol, Patience: answerPatience}
		if a.IsValid() {
			q.Source = netip.AddrPortFrom(a, 0)
		}
		all.Go(func() (err error) {
			seen := make(map[fixture.Answer]int)
			if found[i], err = c.one(ctx, w, q, times, seen); err != nil || i >= crowdCompared {
				return err
			}
			return s.compared(ctx, q, seen)
		})
	}
	if err := all.Wait(); err != nil {
		return nil, err
	}
	chosen := make(choice)
	for i, a := range addresses {
		chosen[a] = found[i]
	}
	if c.count >= allSeen {
		for _, name := range c.want.names {
			if !slices.Contains(found, name) {
				return nil, fmt.Errorf("none of %d addresses of %s sees %s", c.count, c.client, name)
			}
		}
	}
	return chosen, nil
}

// one fails unless one address sees one endpoint. It counts the answers.
func (c crowd) one(ctx context.Context, w *network.World, q fixture.Question, times int, seen map[fixture.Answer]int) (string, error) {
	first := ""
	for i := range times {
		got, err := w.Ask(ctx, q)
		seen[got]++
		switch {
		case err != nil:
			return "", err
		case !c.want.allows(q, got):
			return "", fmt.Errorf("%v: got %v, want one of %v", q, got, c.want)
		case i == 0:
			first = got.Name
		case got.Name != first:
			return "", fmt.Errorf("%v: connection %d ended at %s, those before at %s", q, i+1, got.Name, first)
		}
	}
	return first, nil
}
