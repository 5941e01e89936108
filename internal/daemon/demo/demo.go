// Package demo shows the proxy in one minute: a sandbox, sample manifests, real servers, real
// connections through Service addresses, a change under load, an actor that panics and one
// that hangs. Each line of the output is checked, and the demo succeeds only if every check
// does. It uses the root package; package daemon calls it for sluice demo.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
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

// connections is how many connections the demo makes to the endpoints.
const connections = 1000

// messageDeadline is how long the demo's actors may take over one message.
const messageDeadline = 500 * time.Millisecond

// afterChange is how long the load goes on after a change.
const afterChange = 500 * time.Millisecond

// echo is the Service whose endpoint is replaced and whose actor misbehaves.
var echo = service.Key{Namespace: "demo", Name: "echo"}

// Node is the name of this node in the manifests.
const Node = "demo"

// Kernel builds the domains of the backend that the demo uses.
type Kernel func(ctx context.Context, log *zap.Logger) ([]proxy.Domain, error)

// Explain returns the answer of sluice explain for a connection to the sample Service, from the
// rules of a running proxy.
type Explain func(p *proxy.Proxy, domains []proxy.Domain, client, service netip.AddrPort) (string, error)

// run is one run of the demo.
type run struct {
	page      *Page
	log       *zap.Logger
	kernel    Kernel
	explain   Explain
	network   *network
	manifests manifests
	recorder  *recorder
	chaos     *chaos
	domains   []proxy.Domain
	began     time.Time
}

// Run runs the demo inside a sandbox (package sandbox), and prints it to out. It blocks for some
// seconds, and returns an error unless every check succeeded.
func Run(ctx context.Context, out io.Writer, log *zap.Logger, kernel Kernel, explain Explain) (err error) {
	ctx, cancel := context.WithTimeout(ctx, 55*time.Second)
	defer cancel()
	r := &run{page: NewPage(out), log: log, kernel: kernel, explain: explain, recorder: newRecorder(), chaos: newChaos(), began: time.Now()}
	defer func() { err = errors.Join(err, r.close()) }()
	for _, step := range []func(context.Context) error{r.setUp, r.start} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return r.serve(ctx)
}

func (r *run) say(format string, args ...any) {
	r.page.line(fmt.Sprintf("%6.2fs", time.Since(r.began).Seconds()), fmt.Sprintf(format, args...))
}

// setUp makes the network and the manifests.
func (r *run) setUp(context.Context) (err error) {
	r.page.Heading("A private network", "Everything runs in a sandbox, so this host does not change.",
		"A client and the pods are real, in network namespaces.")
	r.say("sandbox: private user, mount and network namespaces; the host is out of reach")
	if r.network, err = newNetwork(); err != nil {
		return fmt.Errorf("demo network: %w", err)
	}
	r.say("network: a client, this node, and %d pods with %d real servers (TCP and UDP, IPv4 and IPv6)",
		len(podNumbers), r.network.Servers())
	if r.manifests, err = newManifests(); err != nil {
		return fmt.Errorf("demo manifests: %w", err)
	}
	entries, err := os.ReadDir(r.manifests.dir)
	if err != nil {
		return err
	}
	r.say("manifests: %d files in %s", len(entries), r.manifests.dir)
	return nil
}

// start chooses the backend.
func (r *run) start(ctx context.Context) (err error) {
	r.domains, err = r.kernel(ctx, r.log)
	if err != nil {
		return err
	}
	var names []string
	for _, d := range r.domains {
		names = append(names, d.Name)
	}
	r.page.Heading("Rules", "A Service has an address that no machine owns.",
		"Sluice writes rules that make the kernel send each connection to a pod.")
	r.say("kernel: %s", strings.Join(names, ", "))
	return nil
}

// serve runs the proxy and the steps that need it.
func (r *run) serve(ctx context.Context) error {
	p, err := proxy.New(proxy.Config{
		Node:    proxy.NodeSettings{Name: Node, DetectLocal: proxy.DetectNodeCIDR},
		Domains: r.domains,
		Source: func(ctx context.Context, cache *source.Cache) error {
			return manifest.New(r.manifests.dir, cache, Node, manifest.Options{Log: r.log}).Run(ctx)
		},
		MessageDeadline: messageDeadline,
		Listeners:       []observe.Listener{r.recorder, observe.NewLog(r.log, nil)},
		Intercept:       r.chaos.intercept,
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	for _, step := range []func(context.Context) error{r.program, r.rule, func(context.Context) error { return r.explainOne(p) }, r.spread, r.replace, r.panic, r.hang} {
		if err = step(ctx); err != nil {
			break
		}
	}
	r.chaos.end()
	cancel()
	if runErr := <-done; runErr != nil {
		return errors.Join(runErr, err)
	}
	if err == nil {
		r.say("done: %d batches wrote %d objects", r.recorder.batches, r.recorder.objects)
	}
	return err
}

// program waits for the first rules.
func (r *run) program(ctx context.Context) error {
	began := time.Now()
	if _, err := r.awaitApplied(ctx, "rules for demo/echo and demo/dns", time.Time{}, echo, service.Key{Namespace: "demo", Name: "dns"}); err != nil {
		return err
	}
	r.say("rules: both Services are in the kernel, %v after the proxy started", time.Since(began).Round(time.Millisecond))
	return nil
}

// awaitApplied waits until every domain has applied the keys after a moment, and returns
// the last application.
func (r *run) awaitApplied(ctx context.Context, what string, after time.Time, keys ...service.Key) (last aggregator.Applied, err error) {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	err = r.recorder.await(ctx, what, func() bool {
		for _, key := range keys {
			e, all := r.recorder.appliedSince(key, after, len(r.domains))
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
func (r *run) spread(ctx context.Context) error {
	r.page.Heading("Connections", "Every address must work, and its pods must share the load evenly.")
	r.say("connections: %d from the client to the Service addresses", connections)
	for _, t := range targets {
		answers, err := connectMany(ctx, r.network.client, t, connections/len(targets))
		if err != nil {
			return err
		}
		r.say("   %s %-22s %s", t.label, t.addr, answers)
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
func (r *run) replace(ctx context.Context) error {
	r.page.Heading("A change", "A pod is replaced while a client keeps connecting. No connection may fail.")
	l, err := startLoad(ctx, r.network.client)
	if err != nil {
		return err
	}
	changed := time.Now()
	if err := r.manifests.replace("echo.yaml", "10.244.1.13", "10.244.1.14", "fd00:10:244:1::13", "fd00:10:244:1::14"); err != nil {
		return err
	}
	applied, err := r.awaitApplied(ctx, "the replaced endpoint", changed, echo)
	if err == nil {
		var answered time.Time
		if answered, err = l.firstAnswer(ctx, targets[0], "pod-14", changed); err == nil {
			r.say("change: pod-13 replaced by pod-14 under load: first answer %v after the file was saved",
				answered.Sub(changed).Round(100*time.Microsecond))
			r.say("   change → kernel: all rules in place %v after the file was saved, %v after it had been read",
				applied.At.Sub(changed).Round(100*time.Microsecond), applied.At.Sub(applied.Received).Round(10*time.Microsecond))
		}
	}
	time.Sleep(afterChange)
	made, loadErr := l.stop()
	if err = errors.Join(err, loadErr); err != nil {
		return err
	}
	r.say("   %d connections meanwhile, none lost", made)
	return r.gone(ctx, "pod-13")
}

// gone checks that a backend gets no new connections.
func (r *run) gone(ctx context.Context, backend string) error {
	for _, t := range targets[:2] {
		answers, err := connectMany(ctx, r.network.client, t, 50)
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
func (r *run) panic(ctx context.Context) error {
	r.page.Heading("A crash", "One goroutine, the actor, is responsible for one Service. This one crashes.",
		"Sluice must restart it, and no connection may fail.")
	return r.misbehave(ctx, panics, "panic", func() bool { return len(r.recorder.failed) == 1 && r.recorder.restarts >= 1 },
		"10.244.1.14", "10.244.1.13", "fd00:10:244:1::14", "fd00:10:244:1::13")
}

// hang makes it hang on the one after that.
func (r *run) hang(ctx context.Context) error {
	r.page.Heading("A hang", "Now the actor stops responding. Sluice must notice, and replace it.")
	return r.misbehave(ctx, hangs, "hang", func() bool { return len(r.recorder.stuck) == 1 && r.recorder.restarts >= 2 },
		"10.244.1.13", "10.244.1.14", "fd00:10:244:1::13", "fd00:10:244:1::14")
}

// misbehave arms the chaos and changes an endpoint. It checks that the actor restarts, the
// change reaches the kernel, and no connection is lost.
func (r *run) misbehave(ctx context.Context, m mode, verb string, restarted func() bool, pairs ...string) error {
	l, err := startLoad(ctx, r.network.client)
	if err != nil {
		return err
	}
	r.chaos.arm(echo, m)
	changed := time.Now()
	err = r.manifests.replace("echo.yaml", pairs...)
	if err == nil {
		wait, cancel := context.WithTimeout(ctx, 15*time.Second)
		defer cancel()
		err = r.recorder.await(wait, "the restart of an actor made to "+verb, restarted)
	}
	var applied aggregator.Applied
	if err == nil {
		applied, err = r.awaitApplied(ctx, "the change after the restart", changed, echo)
	}
	time.Sleep(afterChange)
	made, loadErr := l.stop()
	if err = errors.Join(err, loadErr); err != nil {
		return err
	}
	r.say("%s: the actor of %s was made to %s at a change; restarted, and the change was in the kernel after %v",
		verb, echo, verb, applied.At.Sub(changed).Round(time.Millisecond))
	if m == hangs {
		r.say("   it stood at: %s", standsAt(r.recorder.stack()))
	}
	r.say("   %d connections meanwhile, none lost", made)
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

func (r *run) close() error {
	var errs []error
	if r.network != nil {
		errs = append(errs, r.network.Close())
	}
	if r.manifests.dir != "" {
		errs = append(errs, r.manifests.close())
	}
	return errors.Join(errs...)
}
