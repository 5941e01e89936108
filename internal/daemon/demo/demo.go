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
	"github.com/sluice-proxy/sluice/internal/daemon/lab"
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

// pods have the addresses 10.244.1.11 and fd00:10:244:1::11 and so on. No manifest names the last one at first. The network
// does not follow the manifests: pods must answer before there are rules for them, and after.
var pods = []string{"pod-11", "pod-12", "pod-13", "pod-14"}

// servers are those of the pods, with their names.
func servers() map[lab.Socket]string {
	all := map[lab.Socket]string{}
	for _, pod := range pods {
		number := strings.TrimPrefix(pod, "pod-")
		for _, addr := range []string{"10.244.1." + number, "fd00:10:244:1::" + number} {
			all[lab.Socket{At: netip.AddrPortFrom(netip.MustParseAddr(addr), 8080), Protocol: service.TCP}] = pod
			all[lab.Socket{At: netip.AddrPortFrom(netip.MustParseAddr(addr), 5353), Protocol: service.UDP}] = pod
		}
	}
	return all
}

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
	network   *lab.Lab
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
	if r.network, err = lab.New(nil, r.log); err != nil {
		return fmt.Errorf("demo network: %w", err)
	}
	servers := servers()
	r.network.Want(servers)
	r.say("network: a client, this node, and %d pods with %d real servers (TCP and UDP, IPv4 and IPv6)", len(pods), len(servers))
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

// underLoad does something while the client keeps connecting, which it does for a moment longer. No connection may fail.
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

// misbehave makes the actor of the sample Service do so at a change of an endpoint.
func (r *run) misbehave(ctx context.Context, m mode, from, to string, restarted func() bool) error {
	return r.underLoad(ctx, func(*load) error {
		r.chaos.arm(echo, m)
		changed := time.Now()
		if err := r.move(from, to); err != nil {
			return err
		}
		wait, cancel := context.WithTimeout(ctx, 15*time.Second)
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
