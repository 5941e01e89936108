package play

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/sluice-proxy/sluice/test/scenarios/fixture"
	"github.com/sluice-proxy/sluice/test/scenarios/network"
)

// Connections that one client makes one after another, in each family, while the
// statements between run. At the end each of them has to have been answered, by
// the endpoints that are named, and by each of them, if any are.
var _ = define("load", verb{usage: "load one begins p1 cluster, then load one ends a b", kernel: true, parse: parseLoad})

// load is a client at work. Its counts are read when all of its goroutines have
// ended.
type load struct {
	stop func()
	all  sync.WaitGroup
	// counts has one element per family.
	counts []loadCount
}

// loadCount is what one family's connections met.
type loadCount struct {
	question fixture.Question
	seen     map[fixture.Answer]int
	// err is the first that no answer explains, slowest the longest wait for one.
	err     error
	slowest time.Duration
}

const (
	// loadPause is the time between two connections.
	loadPause = 2 * time.Millisecond
	// loadMin is how many of them there have to be at the least: fewer would have
	// seen nothing of what happened.
	loadMin = 20
)

func parseLoad(words []string) (statement, error) {
	switch {
	case len(words) == 4 && words[1] == "begins":
		to, err := parseTarget(words[3])
		return settled(func(ctx context.Context, s *Stage, _ *network.World) error {
			return beginLoad(ctx, s, words[0], words[2], to)
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
		return settled(func(_ context.Context, s *Stage, _ *network.World) error {
			return endLoad(s, words[0], want)
		}), nil
	default:
		return nil, errors.New("want NAME begins CLIENT TARGET, or NAME ends [ENDPOINT…]")
	}
}

func beginLoad(ctx context.Context, s *Stage, name, client string, to target) error {
	stop := make(chan struct{})
	l := &load{stop: sync.OnceFunc(func() { close(stop) }), counts: make([]loadCount, len(s.families))}
	for i, family := range s.families {
		at, err := to.resolve(s, family)
		if err != nil {
			return err
		}
		l.counts[i] = loadCount{
			question: fixture.Question{Family: family, From: client, To: at, Protocol: to.protocol, Patience: answerPatience},
			seen:     make(map[fixture.Answer]int),
		}
	}
	for i := range l.counts {
		l.all.Go(func() { l.counts[i].work(ctx, s, stop) })
	}
	s.atEnd(func() error { l.stop(); l.all.Wait(); return nil })
	keep(s, name, l)
	return nil
}

// work connects until it is stopped. The last connection is not cut off: it would
// look like one that nobody answered.
func (c *loadCount) work(ctx context.Context, s *Stage, stop <-chan struct{}) {
	ticker := time.NewTicker(loadPause)
	defer ticker.Stop()
	for {
		begin := time.Now()
		got, err := s.Ask(ctx, c.question)
		if c.slowest = max(c.slowest, time.Since(begin)); err != nil {
			c.err = err
			return
		}
		c.seen[got]++
		select {
		case <-stop:
			return
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// endLoad stops the client and judges what it has met.
func endLoad(s *Stage, name string, want outcome) error {
	l, err := kept[*load](s, name)
	if err != nil {
		return err
	}
	l.stop()
	l.all.Wait()
	var errs []error
	for _, c := range l.counts {
		errs = append(errs, c.judge(want))
	}
	return errors.Join(errs...)
}

func (c *loadCount) judge(want outcome) error {
	total := 0
	for answer, n := range c.seen {
		total += n
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

// summary lists the answers with their numbers.
func (c *loadCount) summary() []string {
	var all []string
	for answer, n := range c.seen {
		all = append(all, fmt.Sprintf("%d× %v", n, answer))
	}
	slices.Sort(all)
	return all
}
