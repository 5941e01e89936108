// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/sluice-proxy/sluice/internal/inspect"
	"github.com/sluice-proxy/sluice/source/kube"
)

const (
	// asksMax bounds the proxies that are queried at a time.
	asksMax = 64
	// askWait is how long a proxy may delay its answer if all can be queried at a time; otherwise it must not delay it.
	askWait = 10 * time.Second
	// askTime is how long an answer may take in addition to the wait and the search.
	askTime = 5 * time.Second
	// early is how long before the end of the context a proxy must send its answer.
	early = time.Second
	// askPause is the pause between two queries to one proxy.
	askPause = 200 * time.Millisecond
	// failuresMax is how many failures in a row make a proxy unreachable.
	failuresMax = 3
	// answerMax bounds the text of an answer, in bytes.
	answerMax = 64 << 10
)

// Target is a node and the way to query its proxy. This node is one target.
type Target struct {
	Node, Pod string
	Client    *inspect.Client
	// Err says why the proxy cannot be queried.
	Err error
	// gone, if it is not nil, queries endpoints in place of Client.
	gone func(context.Context, inspect.GoneQuery) (*inspect.Gone, error)
}

// Proxies are the proxies of all nodes. Wait queries each until the endpoint is gone there.
type Proxies struct {
	Targets []Target
	// IgnoreUnreachable makes Wait ignore proxies that do not answer.
	IgnoreUnreachable bool
	// Changed is called after each change of a result, on one goroutine at a time. It must not block.
	Changed func(all []NodeReport)
}

// Cluster returns the nodes of a cluster, whose health servers answer at a port.
func Cluster(ctx context.Context, kubeconfig, userAgent string, port uint16) (all []Target, err error) {
	found, err := kube.NodeAddresses(ctx, kube.Config{Kubeconfig: kubeconfig, UserAgent: userAgent})
	if err == nil && len(found) == 0 {
		err = errors.New("the cluster has no Nodes")
	}
	for _, node := range found {
		all = append(all, Of(node, port))
	}
	return all, err
}

// Of returns a node of the cluster whose health server answers at a port.
func Of(node kube.NodeAddress, port uint16) Target {
	if node.Addr.IsValid() {
		return Target{Node: node.Name, gone: over("http://" + netip.AddrPortFrom(node.Addr, port).String())}
	}
	return Target{Node: node.Name, Err: errors.New("the Node has no InternalIP")}
}

// At returns the node whose health server answers at a URL.
func At(text string) (Target, error) {
	at, err := url.Parse(text)
	if err != nil || at.Scheme != "http" || at.Host == "" || at.Path != "" && at.Path != "/" || at.RawQuery != "" {
		return Target{}, fmt.Errorf("%q: must be a URL without a path, such as http://192.0.2.1:10256", text)
	}
	return Target{Node: at.Host, gone: over("http://" + at.Host)}, nil
}

// Wait asks all proxies until the endpoint is gone everywhere, or the context ends.
func (p *Proxies) Wait(ctx context.Context, at netip.AddrPort) *Report {
	f := &fleet{Proxies: p, began: time.Now(), report: Report{Endpoint: inspect.EndpointText(at), Gone: true}, wait: askWait}
	if len(p.Targets) > asksMax {
		f.wait = 0
	}
	for i := range p.Targets {
		f.report.Nodes = append(f.report.Nodes, NodeReport{Node: p.Targets[i].Node, State: isUnreachable, Detail: ErrNoAnswer.Error()})
	}
	Each(ctx, asksMax, len(p.Targets), func(ctx context.Context, i int) (bool, time.Duration) {
		a, err := f.ask(ctx, i, at, f.waitOf(i))
		if ctx.Err() != nil && err != nil {
			return false, 0 // the last result stays
		}
		return f.note(i, a, err)
	})
	for i := range f.report.Nodes {
		f.report.Gone = f.report.Gone && f.report.Nodes[i].done()
	}
	return &f.report
}

// fleet is a Wait in progress.
type fleet struct {
	*Proxies
	wait  time.Duration
	began time.Time

	mu     sync.Mutex
	report Report
}

// waitOf returns how long the next answer may wait. The first answer must not wait, so that the state is known from the
// beginning. An answer after a failure must not wait either, because a device in between may end long requests.
func (f *fleet) waitOf(i int) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	if n := &f.report.Nodes[i]; n.failures > 0 || n.last == nil {
		return 0
	}
	return f.wait
}

// note keeps a result, and returns whether and when to query the proxy again. A failure after an answer counts once the
// next query, which does not wait, failed as well.
func (f *fleet) note(i int, a *inspect.Gone, err error) (again bool, pause time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := &f.report.Nodes[i]
	n.Seconds = time.Since(f.began).Round(time.Millisecond).Seconds()
	if err == nil {
		n.failures, n.last = 0, a
		n.State, n.Detail = stateOf(a)
	} else if n.failures++; n.last == nil || n.failures > 1 {
		if n.State, n.Detail = isUnreachable, err.Error(); f.IgnoreUnreachable && n.failures >= failuresMax {
			n.State = isIgnored
		} else if n.last != nil {
			state, detail := stateOf(n.last)
			n.Detail += strings.TrimSuffix("; the last answer: "+state+", "+detail, ", ")
		}
	}
	if f.Changed != nil {
		f.Changed(f.report.Nodes)
	}
	return !n.done(), askPause * time.Duration(1+n.failures)
}

// ask asks one proxy.
func (f *fleet) ask(ctx context.Context, i int, at netip.AddrPort, wait time.Duration) (*inspect.Gone, error) {
	if end, limited := ctx.Deadline(); limited {
		wait = max(0, min(wait, time.Until(end)-early))
	}
	ctx, cancel := context.WithTimeout(ctx, wait+inspect.GoneSearchTime+askTime)
	defer cancel()
	t, q := &f.Targets[i], inspect.GoneQuery{At: at, Wait: wait}
	switch {
	case t.Err != nil:
		return nil, t.Err
	case t.gone != nil:
		return t.gone(ctx, q)
	default:
		return t.Client.Gone(ctx, q)
	}
}

var healthServers = http.Client{Transport: &http.Transport{DialContext: (&net.Dialer{Timeout: askTime}).DialContext, DisableKeepAlives: true}}

// over returns a function that queries the health server at the URL base.
func over(base string) func(context.Context, inspect.GoneQuery) (*inspect.Gone, error) {
	return func(ctx context.Context, q inspect.GoneQuery) (*inspect.Gone, error) {
		address := base + inspect.PathEndpoint + inspect.EndpointText(q.At) + "?wait=" + q.Wait.Truncate(time.Millisecond).String()
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
		if err != nil {
			return nil, err
		}
		response, err := healthServers.Do(request)
		if err != nil {
			if inner, ok := errors.AsType[*url.Error](err); ok {
				err = inner.Err // without the URL, which the table has no room for
			}
			return nil, err
		}
		defer response.Body.Close() // it is read to the end
		text, err := io.ReadAll(io.LimitReader(response.Body, answerMax))
		if err != nil {
			return nil, err
		}
		return parse(response, text)
	}
}

// parse reads an answer.
func parse(response *http.Response, text []byte) (*inspect.Gone, error) {
	if response.StatusCode == http.StatusOK {
		a := &inspect.Gone{}
		if err := json.Unmarshal(text, a); err != nil || a.Endpoint == "" {
			return nil, errors.New("the answer is not one of Sluice")
		}
		return a, nil
	}
	var failed inspect.Failure
	if json.Unmarshal(text, &failed) == nil && failed.Error != "" {
		if response.StatusCode == http.StatusTooManyRequests {
			return &inspect.Gone{Reason: failed.Error}, nil
		}
		return nil, fmt.Errorf("%s: %s", response.Status, failed.Error)
	}
	if response.StatusCode == http.StatusNotFound {
		return nil, errors.New("the proxy does not answer about endpoints: another release, another proxy, or healthz.endpoints is false")
	}
	return nil, errors.New(response.Status)
}
