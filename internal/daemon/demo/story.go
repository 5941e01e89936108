// Package demo tells a story in one minute: a sandbox, sample manifests, real backends, real
// connections through Service addresses, a change under load, an actor that panics and one
// that hangs. Each line of the story is checked, and the story succeeds only if every check
// did. It stands above the root package; package daemon calls it for sluice demo.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/observe"
	"github.com/sluice-proxy/sluice/proxy"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source"
	"github.com/sluice-proxy/sluice/source/manifest"
)

// connections is how many the story makes to the endpoints.
const connections = 1000

// messageDeadline is how long the demo's actors may take over one message.
const messageDeadline = 500 * time.Millisecond

// afterChange is how long the load goes on after a change.
const afterChange = 500 * time.Millisecond

// echo is the Service whose endpoint is replaced and whose actor misbehaves.
var echo = service.Key{Namespace: "demo", Name: "echo"}

// Node is the name of this node in the manifests.
const Node = "demo"

// Kernel builds the domains of the backend that the story uses.
type Kernel func(ctx context.Context, log *zap.Logger) ([]proxy.Domain, error)

// story is one run of the demo.
type story struct {
	out       io.Writer
	log       *zap.Logger
	kernel    Kernel
	network   *network
	manifests manifests
	witness   *witness
	chaos     *chaos
	domains   []proxy.Domain
	began     time.Time
}

// Tell prints the story to out, inside a sandbox (package sandbox). It blocks for some
// seconds, and returns an error unless every check succeeded.
func Tell(ctx context.Context, out io.Writer, log *zap.Logger, kernel Kernel) (err error) {
	ctx, cancel := context.WithTimeout(ctx, 55*time.Second)
	defer cancel()
	s := &story{out: out, log: log, kernel: kernel, witness: newWitness(), chaos: newChaos(), began: time.Now()}
	defer func() { err = errors.Join(err, s.close()) }()
	for _, chapter := range []func(context.Context) error{s.setUp, s.start} {
		if err := chapter(ctx); err != nil {
			return err
		}
	}
	return s.serve(ctx)
}

func (s *story) say(format string, args ...any) {
	fmt.Fprintf(s.out, "%6.2fs  %s\n", time.Since(s.began).Seconds(), fmt.Sprintf(format, args...))
}

// setUp makes the network and the manifests.
func (s *story) setUp(context.Context) (err error) {
	s.say("sandbox: private user, mount and network namespaces; the host is out of reach")
	if s.network, err = newNetwork(); err != nil {
		return fmt.Errorf("demo network: %w", err)
	}
	s.say("network: a client, this node, and %d pods with %d real backends (TCP and UDP, IPv4 and IPv6)",
		len(podNumbers), s.network.Servers())
	if s.manifests, err = newManifests(); err != nil {
		return fmt.Errorf("demo manifests: %w", err)
	}
	entries, err := os.ReadDir(s.manifests.dir)
	if err != nil {
		return err
	}
	s.say("manifests: %d files in %s", len(entries), s.manifests.dir)
	return nil
}

// start chooses the backend.
func (s *story) start(ctx context.Context) (err error) {
	s.domains, err = s.kernel(ctx, s.log)
	if err != nil {
		return err
	}
	var names []string
	for _, d := range s.domains {
		names = append(names, d.Name)
	}
	s.say("kernel: %s", strings.Join(names, ", "))
	return nil
}

// serve runs the proxy and the chapters that need it.
func (s *story) serve(ctx context.Context) error {
	p, err := proxy.New(proxy.Config{
		Node:    proxy.NodeSettings{Name: Node, DetectLocal: proxy.DetectNodeCIDR},
		Domains: s.domains,
		Source: func(ctx context.Context, cache *source.Cache) error {
			return manifest.New(s.manifests.dir, cache, Node, manifest.Options{Log: s.log}).Run(ctx)
		},
		MessageDeadline: messageDeadline,
		Listeners:       []observe.Listener{s.witness, observe.NewLog(s.log, nil)},
		Intercept:       s.chaos.intercept,
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	for _, chapter := range []func(context.Context) error{s.program, s.spread, s.replace, s.panic, s.hang} {
		if err = chapter(ctx); err != nil {
			break
		}
	}
	s.chaos.end()
	cancel()
	if runErr := <-done; runErr != nil {
		return errors.Join(runErr, err)
	}
	if err == nil {
		s.say("done: %d batches wrote %d objects", s.witness.batches, s.witness.objects)
	}
	return err
}

// program waits for the first rules.
func (s *story) program(ctx context.Context) error {
	began := time.Now()
	if _, err := s.awaitApplied(ctx, "rules for demo/echo and demo/dns", time.Time{}, echo, service.Key{Namespace: "demo", Name: "dns"}); err != nil {
		return err
	}
	s.say("rules: both Services are in the kernel, %v after the proxy started", time.Since(began).Round(time.Millisecond))
	return nil
}

// awaitApplied waits until every domain has applied the keys after a moment, and returns
// the last application.
func (s *story) awaitApplied(ctx context.Context, what string, after time.Time, keys ...service.Key) (last aggregator.Applied, err error) {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	err = s.witness.await(ctx, what, func() bool {
		for _, key := range keys {
			e, all := s.witness.appliedSince(key, after, len(s.domains))
			if !all {
				return false
			}
			if e.At.After(last.At) {
				last = e
			}
		}
		return true
	})
	return last, err
}

// spread makes many connections and shows who answered.
func (s *story) spread(ctx context.Context) error {
	s.say("connections: %d from the client to the Service addresses", connections)
	for _, t := range targets {
		answers, err := connectMany(ctx, s.network.client, t, connections/len(targets))
		if err != nil {
			return err
		}
		s.say("   %s %-22s %s", t.label, t.addr, answers)
		for _, number := range podNumbers[:3] {
			name := fmt.Sprintf("pod-%d", number)
			// 250 over three: expected 83, and fewer than 40 is beyond chance.
			if answers[name] < connections/len(targets)/6 {
				return fmt.Errorf("%s: %s answered %d of %d connections: not spread evenly", t.label, name, answers[name], connections/len(targets))
			}
		}
	}
	return nil
}

// replace replaces one endpoint under load.
func (s *story) replace(ctx context.Context) error {
	l, err := startLoad(ctx, s.network.client)
	if err != nil {
		return err
	}
	changed := time.Now()
	if err := s.manifests.replace("echo.yaml", "10.244.1.13", "10.244.1.14", "fd00:10:244:1::13", "fd00:10:244:1::14"); err != nil {
		return err
	}
	applied, err := s.awaitApplied(ctx, "the replaced endpoint", changed, echo)
	if err == nil {
		var answered time.Time
		if answered, err = l.firstAnswer(ctx, targets[0], "pod-14", changed); err == nil {
			s.say("change: pod-13 replaced by pod-14 under load: first answer %v after the file was saved",
				answered.Sub(changed).Round(100*time.Microsecond))
			s.say("   change → kernel: all rules in place %v after the file was saved, %v after it had been read",
				applied.At.Sub(changed).Round(100*time.Microsecond), applied.At.Sub(applied.Received).Round(10*time.Microsecond))
		}
	}
	time.Sleep(afterChange)
	made, loadErr := l.stop()
	if err = errors.Join(err, loadErr); err != nil {
		return err
	}
	s.say("   %d connections meanwhile, none lost", made)
	return s.gone(ctx, "pod-13")
}

// gone checks that a backend gets no new connections.
func (s *story) gone(ctx context.Context, backend string) error {
	for _, t := range targets[:2] {
		answers, err := connectMany(ctx, s.network.client, t, 50)
		if err != nil {
			return err
		}
		if answers[backend] > 0 {
			return fmt.Errorf("%s: %s still answers after it was taken out", t.label, backend)
		}
	}
	return nil
}

// panic makes the actor of demo/echo panic on the next change.
func (s *story) panic(ctx context.Context) error {
	return s.misbehave(ctx, panics, "panic", func() bool { return len(s.witness.failed) == 1 && s.witness.restarts >= 1 },
		"10.244.1.14", "10.244.1.13", "fd00:10:244:1::14", "fd00:10:244:1::13")
}

// hang makes it hang on the one after that.
func (s *story) hang(ctx context.Context) error {
	return s.misbehave(ctx, hangs, "hang", func() bool { return len(s.witness.stuck) == 1 && s.witness.restarts >= 2 },
		"10.244.1.13", "10.244.1.14", "fd00:10:244:1::13", "fd00:10:244:1::14")
}

// misbehave arms the chaos and changes an endpoint. It checks that the actor restarts, the
// change reaches the kernel, and no connection is lost.
func (s *story) misbehave(ctx context.Context, m mode, verb string, restarted func() bool, pairs ...string) error {
	l, err := startLoad(ctx, s.network.client)
	if err != nil {
		return err
	}
	s.chaos.arm(echo, m)
	changed := time.Now()
	err = s.manifests.replace("echo.yaml", pairs...)
	if err == nil {
		wait, cancel := context.WithTimeout(ctx, 15*time.Second)
		defer cancel()
		err = s.witness.await(wait, "the restart of an actor made to "+verb, restarted)
	}
	var applied aggregator.Applied
	if err == nil {
		applied, err = s.awaitApplied(ctx, "the change after the restart", changed, echo)
	}
	time.Sleep(afterChange)
	made, loadErr := l.stop()
	if err = errors.Join(err, loadErr); err != nil {
		return err
	}
	s.say("%s: the actor of %s was made to %s at a change; restarted, and the change was in the kernel after %v",
		verb, echo, verb, applied.At.Sub(changed).Round(time.Millisecond))
	if m == hangs {
		s.say("   it stood at: %s", standsAt(s.witness.stack()))
	}
	s.say("   %d connections meanwhile, none lost", made)
	return nil
}

// standsAt returns function and place of our topmost frame in a captured stack. Its lines
// read "# ADDRESS FUNCTION+OFFSET FILE:LINE"; the line of labels has the same shape.
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

func (s *story) close() error {
	var errs []error
	if s.network != nil {
		errs = append(errs, s.network.Close())
	}
	if s.manifests.dir != "" {
		errs = append(errs, s.manifests.close())
	}
	return errors.Join(errs...)
}
