// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sluice-proxy/sluice/test/netnstest"
)

// Ports of every Service and every pod in these tests, the same over TCP and UDP.
const (
	// ServicePort is where a Service answers on its cluster IPs.
	ServicePort = 80
	// BackendPort is where a pod answers.
	BackendPort = 8080
)

// Target is one address of a Service, over one protocol.
type Target = netnstest.Target

// targets returns each address over both protocols.
func targets(addrs ...netip.AddrPort) []Target {
	var all []Target
	for _, addr := range addrs {
		all = append(all, Target{Network: "tcp", Addr: addr}, Target{Network: "udp", Addr: addr})
	}
	return all
}

// Backends returns where a pod itself answers.
func (h *Host) Backends() []Target {
	return targets(netip.AddrPortFrom(h.V4, BackendPort), netip.AddrPortFrom(h.V6, BackendPort))
}

const (
	// quickMax bounds the first question of a test that asks again until the answer is right. Any
	// answer takes a millisecond; waiting longer would only wait for the retransmission of a lost
	// packet.
	quickMax = 300 * time.Millisecond
	// patientMax bounds a question of a client that counts losses. Nothing that is lost comes later.
	patientMax = 20 * time.Second
)

// Reach asks the target from a host, each time on a new connection, until every wanted pod has
// answered, and at least ten times. Another answer is an error, and so is a pod that stays silent:
// each pod gets twenty questions on average, which a fair choice misses once in millions of tests. A
// silent target is asked again, each time with twice the patience, for the machine may be slow.
func (h *Host) Reach(ctx context.Context, target Target, want ...*Host) error {
	names := make([]string, len(want))
	for i, pod := range want {
		names[i] = pod.Name()
	}
	return h.ReachNames(ctx, target, names...)
}

// ReachNames is Reach for pods that are known by their names.
func (h *Host) ReachNames(ctx context.Context, target Target, names ...string) error {
	missing, patience := slices.Clone(names), quickMax
	for asked := 0; asked < 10 || len(missing) > 0; asked++ {
		if asked == 20*max(len(names), 1) {
			return fmt.Errorf("%s to %s: %v never answered in %d questions", h.Name(), target, missing, asked)
		}
		got, err := h.ask(ctx, target, patience)
		if silent, ok := errors.AsType[net.Error](err); ok && silent.Timeout() && patience < patientMax {
			patience *= 2
			continue
		}
		if err != nil {
			return err
		}
		if !slices.Contains(names, got) {
			return fmt.Errorf("%s to %s: %s answered, want only %v", h.Name(), target, got, names)
		}
		missing = slices.DeleteFunc(missing, func(name string) bool { return name == got })
	}
	return nil
}

// Unreachable returns an error if there is an answer at the target. Silence counts as none.
func (h *Host) Unreachable(ctx context.Context, target Target) error {
	got, err := h.ask(ctx, target, quickMax)
	if err == nil {
		return fmt.Errorf("%s to %s: %s answered, want no answer", h.Name(), target, got)
	}
	return ctx.Err() // nil, unless the question was cut short
}

func (h *Host) ask(ctx context.Context, target Target, limit time.Duration) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	answer, err := netnstest.Ask(ctx, h, target.Network, target.Addr)
	return answer.Backend, err
}

// Traffic is what a busy client does while a test disturbs the proxy. It opens a new connection to
// every target again and again, and sends lines on a session with each TCP target that was
// established when the traffic started. Nothing is tried twice, so every loss is counted.
type Traffic struct {
	load *netnstest.Load

	mu       sync.Mutex
	answered int
	targets  []Target
	failures []netnstest.Exchange
	// slow are those for which TCP has sent a packet again, so something was lost for a moment.
	slow []netnstest.Exchange
}

// trafficPause is between two new connections, and between two lines.
const trafficPause = 20 * time.Millisecond

// StartTraffic opens the sessions and starts.
func StartTraffic(ctx context.Context, client *Host, targets ...Target) (*Traffic, error) {
	return startTraffic(ctx, client, trafficPause, targets)
}

// StartNewTraffic is StartTraffic without sessions.
func StartNewTraffic(ctx context.Context, client *Host, targets ...Target) (*Traffic, error) {
	return startTraffic(ctx, client, 0, targets)
}

func startTraffic(ctx context.Context, client *Host, talkPause time.Duration, targets []Target) (*Traffic, error) {
	t := &Traffic{targets: targets}
	note := func(e netnstest.Exchange) {
		t.mu.Lock()
		defer t.mu.Unlock()
		if e.Err != nil {
			t.failures = append(t.failures, e)
			return
		}
		t.answered++
		if e.Ended.Sub(e.Began) > netnstest.PromptMax {
			t.slow = append(t.slow, e)
		}
	}
	var err error
	t.load, err = netnstest.StartLoad(ctx, netnstest.LoadConfig{
		Client: client.Namespace, Targets: targets, Pause: slow(trafficPause), TalkPause: slow(talkPause), Patience: slow(patientMax), Note: note,
	})
	return t, err
}

// Stop ends the traffic and returns how many exchanges went well, and an error if one did not.
func (t *Traffic) Stop() (int, error) {
	t.load.Stop()
	if len(t.failures) == 0 {
		return t.answered, nil
	}
	var text strings.Builder
	slices.SortFunc(t.failures, func(a, b netnstest.Exchange) int { return a.Began.Compare(b.Began) })
	for _, e := range t.failures[:min(len(t.failures), 5)] {
		fmt.Fprintf(&text, "\n\tbegun at %s: %v", e.Began.Format(clock), e.Err)
	}
	last := t.failures[len(t.failures)-1]
	fmt.Fprintf(&text, "\nthe last being\n\tbegun at %s: %v\nanswered after more than %v:", last.Began.Format(clock), last.Err, netnstest.PromptMax)
	for _, e := range t.slow[:min(len(t.slow), 20)] {
		fmt.Fprintf(&text, "\n\t%v (session: %t), begun at %s, after %v", t.targets[e.Target], e.Session, e.Began.Format(clock), e.Ended.Sub(e.Began))
	}
	return t.answered, fmt.Errorf("%d of %d exchanges failed, the first being:%s",
		len(t.failures), len(t.failures)+t.answered, text.String())
}

const clock = "15:04:05.000"

// Lost returns how many exchanges did not go well. Call it after Stop.
func (t *Traffic) Lost() int { return len(t.failures) }

// MetricsAddress is where a proxy serves metrics when nothing else is configured. Only the node itself reaches it.
const MetricsAddress = "127.0.0.1:10249"

// Page is what an HTTP server answered.
type Page struct {
	Status int
	Header http.Header
	Body   string
}

// Get asks an HTTP server once from a host, on a separate connection. An answer with any status
// is no error. The address in the URL must be a literal one.
func (h *Host) Get(ctx context.Context, url string) (Page, error) {
	client := http.Client{Transport: &http.Transport{DialContext: h.DialContext, DisableKeepAlives: true}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return Page{}, fmt.Errorf("%s: %w", h.Name(), err)
	}
	response, err := client.Do(request)
	if err != nil {
		return Page{}, fmt.Errorf("%s: %w", h.Name(), err)
	}
	defer response.Body.Close() // read to its end, or the error is told below
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return Page{}, fmt.Errorf("%s: %s: %w", h.Name(), url, err)
	}
	return Page{response.StatusCode, response.Header, string(body)}, nil
}
