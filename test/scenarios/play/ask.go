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
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/scenarios/fixture"
)

// ask is the statement
//
//	[ipv4|ipv6] CLIENT[@ADDRESS] -> TARGET[/PROTOCOL] => OUTCOME [as SOURCE] [xN [each MIN..MAX]]
//
// It holds when connections of the client to the target end in every way that OUTCOME lists, and in
// no other, in each family.
type ask struct {
	family *service.Family
	client string
	// source is the name of the client's address, or "" for its usual one.
	source string
	target target
	want   outcome
	spread spread
}

// Attempts per question. One endpoint of three stays unseen in all of attemptsMax with a
// probability below 1e-11. An unwanted endpoint among two stays unseen in attemptsMin with one
// below 1e-9. It has to be that small, because a question may be repeated hundreds of times until
// it holds.
const (
	attemptsMin = 32
	attemptsMax = 64
)

func parseAsk(words []string) (statement, error) {
	a := ask{}
	for i, name := range []string{"ipv4", "ipv6"} {
		if words[0] == name {
			a.family, words = &service.Families[i], words[1:]
		}
	}
	if len(words) < 5 || words[1] != "->" || words[3] != "=>" {
		return nil, errors.New("want [ipv4|ipv6] CLIENT -> TARGET => OUTCOME")
	}
	a.client, a.source, _ = strings.Cut(words[0], "@")
	var err error
	if a.target, err = parseTarget(words[2]); err != nil {
		return nil, err
	}
	rest := words[4:]
	if a.spread, rest, err = parseSpread(rest); err != nil {
		return nil, err
	}
	a.want, err = parseOutcome(rest)
	return a, err
}

// of returns the families of a question.
func (a ask) of(s *Stage) []service.Family {
	if a.family != nil {
		return []service.Family{*a.family}
	}
	return s.families
}

// run asks until the question holds.
func (a ask) run(ctx context.Context, s *Stage) error {
	var all errgroup.Group
	for _, family := range a.of(s) {
		all.Go(func() error {
			q, err := a.question(s, family)
			if err != nil {
				return err
			}
			return hold(ctx, func() error { return a.once(ctx, s, q) })
		})
	}
	return all.Wait()
}

// hold tries until it succeeds, for at most holdMax.
func hold(ctx context.Context, try func() error) error {
	const pause = 20 * time.Millisecond
	for deadline := time.Now().Add(holdMax); ; {
		err := try()
		if err == nil || time.Now().After(deadline) {
			return err
		}
		if ended := sleep(ctx, pause); ended != nil {
			return errors.Join(err, ended)
		}
	}
}

func (a ask) question(s *Stage, family service.Family) (fixture.Question, error) {
	q := fixture.Question{Family: family, From: a.client, Protocol: a.target.protocol, Patience: askPatience}
	if a.want.silent() {
		q.Patience = silencePatience
	}
	if a.source != "" {
		from, err := fixture.Address(family, a.source)
		if err != nil {
			return q, err
		}
		q.Source = netip.AddrPortFrom(from, 0)
	}
	var err error
	q.To, err = a.target.resolve(s, family)
	return q, err
}

// once asks until it has seen every wanted answer.
func (a ask) once(ctx context.Context, s *Stage, q fixture.Question) error {
	seen := make(map[fixture.Answer]int)
	most, least := attemptsMax, attemptsMin
	if a.want.fate != fixture.Answered {
		most, least = 1, 1 // there is nothing to choose from
	}
	if a.spread.times > 0 {
		most, least = a.spread.times, a.spread.times
	}
	for i := 0; i < most && (i < least || !a.want.complete(seen)); i++ {
		got, err := s.Ask(ctx, q)
		if err != nil {
			return err
		}
		seen[got]++
		if !a.want.allows(q, got) {
			return fmt.Errorf("%v: got %v, want %v", q, got, a.want)
		}
	}
	if !a.want.complete(seen) {
		return fmt.Errorf("%v: saw only %v, want %v", q, slices.Collect(maps.Keys(seen)), a.want)
	}
	if err := a.spread.judge(q, seen); err != nil {
		return err
	}
	if a.want.denied {
		return nil // by others, of whom sluice explain knows nothing
	}
	return s.compared(ctx, q, seen)
}

// spread is the end of a question, x3000 each 850..1150: how many connections, and how many of them
// each endpoint gets.
type spread struct {
	times, least, most int
}

// parseSpread removes it from the end of the words.
func parseSpread(words []string) (spread, []string, error) {
	var s spread
	rest := words
	if n := len(rest); n >= 2 && rest[n-2] == "each" {
		least, most, ok := strings.Cut(rest[n-1], "..")
		var errs [2]error
		s.least, errs[0] = strconv.Atoi(least)
		s.most, errs[1] = strconv.Atoi(most)
		if err := errors.Join(errs[:]...); !ok || err != nil {
			return s, nil, fmt.Errorf("each %s: want MIN..MAX", rest[n-1])
		}
		rest = rest[:n-2]
	}
	if n := len(rest); n >= 1 && len(rest[n-1]) > 1 && rest[n-1][0] == 'x' {
		if times, err := strconv.Atoi(rest[n-1][1:]); err == nil {
			s.times, rest = times, rest[:n-1]
		}
	}
	if s.most > 0 && s.times == 0 {
		return s, nil, errors.New("each needs a number of connections: x3000 each 850..1150")
	}
	return s, rest, nil
}

func (s spread) judge(q fixture.Question, seen map[fixture.Answer]int) error {
	if s.most == 0 {
		return nil
	}
	for answer, n := range seen {
		if n < s.least || n > s.most {
			return fmt.Errorf("%v: %v %d of %d times, want %d to %d", q, answer, n, s.times, s.least, s.most)
		}
	}
	return nil
}
