// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/datadriven"
)

// TestScripts runs the scripts in testdata; testdata/README.md describes their notation.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		if strings.HasSuffix(path, ".md") {
			return
		}
		synctest.Test(t, func(t *testing.T) {
			s := &script{}
			datadriven.RunTest(t, path, s.step)
		})
	})
}

// script is one supervisor and its children, under the commands of a file.
type script struct {
	f        *fixture
	began    time.Time
	children map[name]*subject
	mu       sync.Mutex // guards what follows
	lines    []string
	// stands has what each child waits for; nothing if it has a lease.
	stands map[name]string
}

// subject is a child that does as it is told.
type subject struct {
	script *script
	name   name
	how    string
	lease  *Lease
	// hung has what ends the hanging of an incarnation.
	hung map[string]chan struct{}
}

func (s *script) since(at time.Time) string {
	return "+" + at.Sub(s.began).Round(time.Millisecond).String()
}

func (s *script) note(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines = append(s.lines, s.since(time.Now())+" "+fmt.Sprintf(format, args...))
}

func (s *script) step(t *testing.T, d *datadriven.TestData) string {
	if d.Cmd == "new" {
		s.open(t, d)
		return ""
	}
	first, how := d.CmdArgs[0].Key, ""
	if len(d.CmdArgs) > 1 {
		how = d.CmdArgs[1].Key
	}
	c := s.children[name(first)]
	switch d.Cmd {
	case "want":
		if c == nil {
			c = &subject{script: s, name: name(first), hung: map[string]chan struct{}{}}
			s.children[name(first)] = c
		}
		s.f.Want(c.name, c.runAs(how))
	case "become":
		c.how = how
	case "wake":
		c.lease.Wake()
	case "nudge":
		s.f.Nudge(c.name)
	case "release":
		close(c.hung[how])
	case "wait":
		time.Sleep(parse(t, d, first))
	case "stop":
		s.f.stop()
		s.note("stopped")
	default:
		d.Fatalf(t, "no such command; see testdata/README.md")
	}
	synctest.Wait()
	return s.shown()
}

func parse(t *testing.T, d *datadriven.TestData, text string) time.Duration {
	took, err := time.ParseDuration(text)
	if err != nil {
		d.Fatalf(t, "%v", err)
	}
	return took
}

func (s *script) open(t *testing.T, d *datadriven.TestData) {
	if s.f != nil {
		s.f.stop()
	}
	s.began, s.children, s.lines = time.Now(), map[name]*subject{}, nil
	s.stands = map[name]string{}
	s.f = start(t, func(l *limits) {
		for _, a := range d.CmdArgs {
			field := map[string]*time.Duration{"deadline": &l.messageDeadline, "backoff": &l.backoffMin,
				"backoff-max": &l.backoffMax, "half-life": &l.scoreHalfLife, "park-retry": &l.parkRetry}[a.Key]
			if field != nil {
				*field = parse(t, d, a.Vals[0])
			} else {
				l.parkScore, _ = strconv.ParseFloat(a.Vals[0], 64) // park
			}
		}
	}, s.event)
}

// runAs returns the body of a child. It does as the child is told last, at first as given.
func (c *subject) runAs(how string) Run {
	first := true
	return func(ctx context.Context, lease *Lease) (bool, error) {
		c.script.mu.Lock()
		c.lease = lease
		c.script.mu.Unlock()
		if first {
			first, c.how = false, how
		}
		c.script.note("%s %d is called, and %s", c.name, lease.Incarnation(), c.how)
		lease.Begin()
		defer lease.End()
		switch c.how {
		case "rests":
			return true, nil
		case "ends":
			return false, nil
		case "fails":
			return false, errors.New("no")
		case "panics":
			panic("poison")
		case "works-1s":
			time.Sleep(time.Second)
			return true, nil
		case "hangs":
			hung := make(chan struct{})
			c.hung[fmt.Sprint(lease.Incarnation())] = hung
			hangHere(hung)
			c.script.note("%s %d goes on, fenced: %t, cancelled: %t", c.name, lease.Incarnation(), lease.Fenced(), ctx.Err() != nil)
			return false, nil
		}
		lease.End() // idle
		<-ctx.Done()
		return false, ctx.Err()
	}
}

//go:noinline
func hangHere(release chan struct{}) { <-release }

// stand notes how a child stands.
func (s *script) stand(child name, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if text == "gone" {
		delete(s.stands, child)
	} else {
		s.stands[child] = text
	}
}

// retry is when a child that has failed is tried again. Parked comes before what it is about.
func (s *script) retry(child name, pause time.Duration) {
	if at := "parked until " + s.since(time.Now().Add(pause)); s.stands[child] != at {
		s.stand(child, "waits until "+s.since(time.Now().Add(pause)))
	}
}

// event notes an event, with a word on a stack that must name the culprit.
func (s *script) event(e Event[name]) {
	who := fmt.Sprintf("%s %d", e.Child, e.Incarnation)
	stack := func(text, function string) string {
		if strings.Contains(text, function) {
			return "the stack names " + function
		}
		return "the stack is lost"
	}
	switch w := e.What.(type) {
	case Started:
		s.stand(e.Child, "")
		s.note("%s starts%s", who, map[bool]string{true: " again"}[w.Again])
	case Failed:
		s.retry(e.Child, w.Backoff)
		text, panicked := w.Err.Error(), (*PanicError)(nil)
		if errors.As(w.Err, &panicked) {
			text += ", " + stack(string(panicked.Stack), "runAs")
		}
		s.note("%s failed: %s; score %.2f, backoff %v", who, text, w.Score, w.Backoff.Round(time.Millisecond))
	case Stuck:
		s.retry(e.Child, w.Backoff)
		s.note("%s is stuck for %v, %s; score %.2f, backoff %v, %d abandoned", who, w.For.Round(time.Millisecond), stack(w.Stack, "hangHere"),
			w.Score, w.Backoff.Round(time.Millisecond), w.Abandoned)
	case Parked:
		s.stand(e.Child, "parked until "+s.since(w.Until))
		s.note("%s is parked until %s: %v; score %.2f", e.Child, s.since(w.Until), w.Err, w.Score)
	case Unparked:
		s.stand(e.Child, "waits for its next try")
		s.note("%s is unparked, %s", e.Child, map[bool]string{true: "nudged", false: "the time is up"}[w.Nudged])
	case Ended:
		s.stand(e.Child, "gone")
		s.note("%s ended", who)
	case Returned:
		s.note("%s returned after all, %d abandoned", who, w.Abandoned)
	}
}

// shown returns what has happened since it was called last, and the children.
func (s *script) shown() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	lines := s.lines
	s.lines = nil
	for _, key := range slices.Sorted(maps.Keys(s.stands)) {
		text := s.stands[key]
		if l := s.children[key].lease; text == "" {
			l.mu.Lock()
			text = fmt.Sprintf("%d is %s", l.incarnation, [...]string{"working", "working, and called again", "resting", "over"}[l.phase])
			l.mu.Unlock()
		}
		lines = append(lines, fmt.Sprintf("now: %s %s", key, text))
	}
	return strings.Join(lines, "\n")
}
