// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// spread makes many connections and shows who answered.
func (r *run) spread(ctx context.Context) error {
	r.page.Heading("Connections", "Every address must work, and its pods must share the load evenly.")
	r.say("connections: %d from the client to the Service addresses", connections)
	for _, t := range targets {
		answers, err := r.connectMany(ctx, t, connections/len(targets))
		if err != nil {
			return err
		}
		r.say("   %s %-22s %s", t.label, t.addr, answers)
		for _, name := range pods[:3] {
			// 250 over three: expected 83, and fewer than 40 is beyond chance.
			if answers[name] < connections/len(targets)/6 {
				return fmt.Errorf("%s: %s answered %d of %d connections: not spread evenly", t.label, name, answers[name], connections/len(targets))
			}
		}
	}
	return nil
}

// replace replaces one endpoint under load.
func (r *run) replace(ctx context.Context) error {
	r.page.Heading("A change", "A pod is replaced while a client keeps connecting. No connection may fail.")
	err := r.underLoad(ctx, func(l *load) error {
		changed := time.Now()
		if err := r.move("13", "14"); err != nil {
			return err
		}
		applied, err := r.awaitApplied(ctx, "the replaced endpoint", changed, echo)
		if err != nil {
			return err
		}
		answered, err := l.firstAnswer(ctx, targets[0], "pod-14", changed)
		if err != nil {
			return err
		}
		r.say("change: pod-13 replaced by pod-14 under load: first answer %v after the file was saved",
			answered.Sub(changed).Round(100*time.Microsecond))
		r.say("   change → kernel: all rules in place %v after the file was saved, %v after it had been read",
			applied.At.Sub(changed).Round(100*time.Microsecond), applied.At.Sub(applied.Received).Round(10*time.Microsecond))
		return nil
	})
	if err != nil {
		return err
	}
	return r.gone(ctx, "pod-13")
}

// underLoad calls do while the client keeps connecting, and for a moment longer. No connection may fail.
func (r *run) underLoad(ctx context.Context, do func(*load) error) error {
	l := r.startLoad(ctx)
	err := do(l)
	time.Sleep(afterChange)
	made, lost := l.stop()
	if err := errors.Join(err, lost); err != nil {
		return err
	}
	r.say("   %d connections meanwhile, none lost", made)
	return nil
}

// move replaces an endpoint of the sample Service, in both families.
func (r *run) move(from, to string) error {
	return r.manifests.replace("echo.yaml", "10.244.1."+from, "10.244.1."+to, "fd00:10:244:1::"+from, "fd00:10:244:1::"+to)
}

// gone checks that a pod gets no new connections.
func (r *run) gone(ctx context.Context, pod string) error {
	for _, t := range targets[:2] {
		answers, err := r.connectMany(ctx, t, 50)
		if err != nil {
			return err
		}
		if answers[pod] > 0 {
			return fmt.Errorf("%s: %s still answers after it was taken out", t.label, pod)
		}
	}
	return nil
}

// panic makes the actor of demo/echo panic on the next change.
func (r *run) panic(ctx context.Context) error {
	r.page.Heading("A crash", "One goroutine, the actor, is responsible for one Service. This one crashes.",
		"Sluice must restart it, and no connection may fail.")
	return r.misbehave(ctx, panics, "14", "13", func() bool { return len(r.recorder.failed) == 1 && r.recorder.restarts >= 1 })
}

func (r *run) hang(ctx context.Context) error {
	r.page.Heading("A hang", "Now the actor stops responding. Sluice must notice, and replace it.")
	return r.misbehave(ctx, hangs, "13", "14", func() bool { return len(r.recorder.stuck) == 1 && r.recorder.restarts >= 2 })
}

// misbehave makes the actor of the sample Service panic or hang at a change of an endpoint.
func (r *run) misbehave(ctx context.Context, m mode, from, to string, restarted func() bool) error {
	return r.underLoad(ctx, func(*load) error {
		r.chaos.arm(echo, m)
		changed := time.Now()
		if err := r.move(from, to); err != nil {
			return err
		}
		wait, cancel := context.WithTimeout(ctx, stepMax)
		defer cancel()
		if err := r.recorder.await(wait, fmt.Sprintf("the restart of an actor made to %s", m), restarted); err != nil {
			return err
		}
		applied, err := r.awaitApplied(ctx, "the change after the restart", changed, echo)
		if err != nil {
			return err
		}
		r.say("%[1]s: the actor of %[2]s was made to %[1]s at a change; restarted, and the change was in the kernel after %[3]v",
			m, echo, applied.At.Sub(changed).Round(time.Millisecond))
		if m == hangs {
			r.say("   it stood at: %s", standsAt(r.recorder.stack()))
		}
		return nil
	})
}

// standsAt returns the function and the line of Sluice's topmost frame in a captured stack. Its lines read "# ADDRESS
// FUNCTION+OFFSET FILE:LINE"; the line of labels has the same shape.
func standsAt(stack string) string {
	for line := range strings.Lines(stack) {
		words := strings.Fields(line)
		if len(words) == 4 && strings.HasPrefix(words[1], "0x") && strings.Contains(words[2], "sluice") {
			function, _, _ := strings.Cut(words[2][strings.LastIndex(words[2], "/")+1:], "+")
			return function + " at " + words[3][strings.LastIndex(words[3], "/")+1:]
		}
	}
	return "not captured"
}
