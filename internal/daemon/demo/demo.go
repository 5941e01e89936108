// SPDX-License-Identifier: Apache-2.0

// Package demo shows the proxy in one minute: a sandbox, sample manifests, real servers, real
// connections through Service addresses, a change under load, an actor that panics and one
// that hangs. Each line of the output is checked, and the demo succeeds only if every check
// does. It stands above package daemon, whose proxy it runs.
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
	"golang.org/x/sync/errgroup"

	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/internal/daemon"
	"github.com/sluice-proxy/sluice/internal/daemon/feed"
	"github.com/sluice-proxy/sluice/internal/daemon/inspection"
	"github.com/sluice-proxy/sluice/internal/daemon/lab"
	"github.com/sluice-proxy/sluice/internal/inspect"
	"github.com/sluice-proxy/sluice/internal/sleep"
	"github.com/sluice-proxy/sluice/observe"
	"github.com/sluice-proxy/sluice/service"
)

// connections is how many connections the demo makes to the endpoints.
const connections = 1000

// messageDeadline is how long the demo's actors may take over one message.
const messageDeadline = 500 * time.Millisecond

// afterChange is how long the load goes on after a change.
const afterChange = 500 * time.Millisecond

// stepMax bounds the wait for the proxy in one step.
const stepMax = 15 * time.Second

// echo is the Service whose endpoint is replaced and whose actor misbehaves, dns the other one.
var (
	echo = service.Key{Namespace: "demo", Name: "echo"}
	dns  = service.Key{Namespace: "demo", Name: "dns"}
)

// node is the name of this node in the manifests.
const node = "demo"

// pods have the addresses 10.244.1.11 and fd00:10:244:1::11 and so on. No manifest names the last one at first. The network
// does not follow the manifests: pods must answer before there are rules for them, and after.
var pods = []string{"pod-11", "pod-12", "pod-13", "pod-14"}

// servers returns the servers of the pods, with the names of the pods.
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

// run is one run of the demo.
type run struct {
	page      *Page
	options   *daemon.Options
	client    *inspect.Client
	network   *lab.Lab
	manifests manifests
	recorder  *recorder
	chaos     *chaos
	// domains are the names of the domains that have the rules.
	domains []string
	began   time.Time
}

// Run runs the demo inside a sandbox (package sandbox), and prints it to out. It blocks for some seconds, and returns an
// error unless every check succeeded. Without verbose it logs nothing: the output is complete without a log, and the
// panics are intended.
func Run(ctx context.Context, given *daemon.Options, out io.Writer, verbose bool) (err error) {
	ctx, cancel := context.WithTimeout(ctx, 55*time.Second)
	defer cancel()
	o := options(given, verbose)
	r := &run{
		page: NewPage(out), options: o, client: inspect.NewClient(inspection.SocketPath(&o.Options)),
		recorder: newRecorder(), chaos: newChaos(), began: time.Now(),
	}
	o.KubeProxy.DetectLocalMode = "NodeCIDR"
	o.MessageDeadline = messageDeadline
	o.Listeners, o.Intercept, o.Ready = []observe.Listener{r.recorder}, r.chaos.intercept, r.recorder.ready
	defer func() { err = errors.Join(err, r.close()) }()
	if err := r.setUp(); err != nil {
		return err
	}
	return r.serve(ctx)
}

// options are those of a proxy in the sandbox. Unless verbose, it logs nothing.
func options(given *daemon.Options, verbose bool) *daemon.Options {
	o, c := *given, *given.Config
	o.Config, o.Sandboxed, c.KubeProxy.HostnameOverride = &c, true, node
	if !verbose {
		c.Sluice.Log.Level = "fatal"
	}
	return &o
}

func (r *run) say(format string, args ...any) {
	r.page.line(fmt.Sprintf("%6.2fs", time.Since(r.began).Seconds()), fmt.Sprintf(format, args...))
}

// setUp makes the network and the manifests.
func (r *run) setUp() (err error) {
	r.page.Heading("A private network", "Everything runs in a sandbox, so this host does not change.",
		"A client and the pods are real, in network namespaces.")
	r.say("sandbox: private user, mount and network namespaces; the host is out of reach")
	if r.network, err = lab.New(nil, zap.NewNop()); err != nil {
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

// serve runs the proxy while the steps check it. If one of them fails, the other ends.
func (r *run) serve(ctx context.Context) error {
	r.page.Heading("Rules", "A Service has an address that no machine owns.",
		"Sluice writes rules that make the kernel send each connection to a pod.")
	group, ctx := errgroup.WithContext(ctx)
	serving, stop := context.WithCancel(ctx)
	group.Go(func() error { return daemon.Run(serving, r.options, feed.Manifests(r.manifests.dir)) })
	group.Go(func() error {
		defer stop()
		defer r.chaos.end()
		for _, step := range []func(context.Context) error{r.program, r.rule, r.explain, r.spread, r.replace, r.panic, r.hang} {
			if err := step(ctx); err != nil {
				return err
			}
		}
		return nil
	})
	err := group.Wait()
	if err == nil {
		r.say("done: %d batches wrote %d objects", r.recorder.batches, r.recorder.objects)
	}
	return err
}

// program waits for the first rules.
func (r *run) program(ctx context.Context) error {
	status, err := eventually(ctx, r.client.Status) // the socket opens when the proxy begins to write
	if err != nil {
		return err
	}
	for _, d := range status.Domains {
		if !d.Auxiliary { // an endpoint changes nothing in the others
			r.domains = append(r.domains, d.Name)
		}
	}
	r.say("kernel: %s", strings.Join(r.domains, ", "))
	last, err := r.awaitApplied(ctx, "rules for demo/echo and demo/dns", time.Time{}, echo, dns)
	if err != nil {
		return err
	}
	r.say("rules: both Services are in the kernel, %v after the proxy started", last.At.Sub(r.recorder.started).Round(time.Millisecond))
	return nil
}

// eventually repeats a request until it succeeds, for the time that a step may take.
func eventually[T any](ctx context.Context, ask func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, stepMax)
	defer cancel()
	for {
		answer, err := ask(ctx)
		if err == nil {
			return answer, nil
		}
		if !sleep.For(ctx, time.Millisecond) {
			return answer, err
		}
	}
}

// awaitApplied waits until every domain has applied the keys after a moment, and returns
// the last application.
func (r *run) awaitApplied(ctx context.Context, what string, after time.Time, keys ...service.Key) (last aggregator.Applied, err error) {
	ctx, cancel := context.WithTimeout(ctx, stepMax)
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

func (r *run) close() error {
	var errs []error
	if r.network != nil {
		errs = append(errs, r.network.CloseNow()) // the sandbox that stays has another network
	}
	if r.manifests.dir != "" {
		errs = append(errs, r.manifests.close())
	}
	return errors.Join(errs...)
}
