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
	"sync"
	"time"

	"github.com/sluice-proxy/sluice/internal/inspect"
	"github.com/sluice-proxy/sluice/source/kube"
)

const (
	// asksMax bounds the proxies that are asked at a time.
	asksMax = 64
	// askWait is how long a proxy may wait with its answer if all can be asked at a time; otherwise it must not wait.
	askWait = 10 * time.Second
	// askTime bounds the rest of an answer.
	askTime = 5 * time.Second
	// early is how long before the end of all time an answer must be sent.
	early = time.Second
	// askPause is the pause between two questions to one proxy.
	askPause = 200 * time.Millisecond
	// failuresMax is how many failures in a row make a proxy unreachable.
	failuresMax = 3
	// answerMax bounds the text of an answer, in bytes.
	answerMax = 64 << 10
)

// Target is a node, and how its proxy is asked. This node is one target.
type Target struct {
	Node, Pod string
	Client    *inspect.Client
	// Err says why the proxy cannot be asked.
	Err error
	// gone asks about endpoints instead of the client; nil for the client.
	gone func(context.Context, inspect.GoneQuery) (*inspect.Gone, error)
}

// Proxies are those of all nodes. Each is asked until the endpoint is gone there.
type Proxies struct {
	Targets []Target
	// IgnoreUnreachable passes over proxies that do not answer.
	IgnoreUnreachable bool
	// Changed is called after each change of a result, on one goroutine at a time. It must not block.
	Changed func(all []Result)
}

// Result is what is known of one node.
type Result struct {
	Node string
	Gone bool
	// After is how long it took until the endpoint was gone, or until the last answer.
	After time.Duration
	// Err is the last failure; nil after an answer. Ignored is set if the node is passed over because of it.
	Err     error
	Ignored bool
	// Answered is set after the first answer. Reason says why the proxy does not know, and Services who sends to the
	// endpoint, both by the last answer.
	Answered bool
	Reason   string
	Services []inspect.Sender
}

// Done reports whether nothing more is asked.
func (r *Result) Done() bool { return r.Gone || r.Ignored }

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

// Wait asks all proxies until the endpoint is gone everywhere, or the context ends. It returns a result for each.
func (p *Proxies) Wait(ctx context.Context, at netip.AddrPort) []Result {
	f := &fleet{Proxies: p, began: time.Now(), results: make([]Result, len(p.Targets)), failures: make([]int, len(p.Targets)), wait: askWait}
	if len(p.Targets) > asksMax {
		f.wait = 0
	}
	for i := range p.Targets {
		f.results[i] = Result{Node: p.Targets[i].Node, Err: ErrNoAnswer}
	}
	Each(ctx, asksMax, len(p.Targets), func(ctx context.Context, i int) (bool, time.Duration) {
		a, err := f.ask(ctx, i, at, f.waitOf(i))
		if ctx.Err() != nil && err != nil {
			return false, 0 // the last result stays
		}
		return f.note(i, a, err)
	})
	return f.results
}

// fleet is a Wait in progress.
type fleet struct {
	*Proxies
	wait  time.Duration
	began time.Time

	mu      sync.Mutex
	results []Result
	// failures counts those in a row.
	failures []int
}

// waitOf returns how long the next answer may wait. The first one must not, so that the state is known from the beginning,
// and no answer after a failure: something between may end long requests.
func (f *fleet) waitOf(i int) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.failures[i] > 0 || !f.results[i].Answered {
		return 0
	}
	return f.wait
}

// note keeps a result, and returns whether and when the proxy is asked again. A failure after an answer counts once the
// question after it, which does not wait, failed as well.
func (f *fleet) note(i int, a *inspect.Gone, err error) (again bool, pause time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	failures := f.failures[i] + 1
	if err == nil {
		failures = 0
	}
	f.failures[i] = failures
	r := &f.results[i]
	if r.After = time.Since(f.began); err == nil {
		r.Answered, r.Err, r.Gone, r.Reason, r.Services = true, nil, a.Gone, a.Reason, a.Services
	} else if !r.Answered || failures > 1 {
		r.Err = err
	}
	r.Ignored = f.IgnoreUnreachable && failures >= failuresMax
	if f.Changed != nil {
		f.Changed(f.results)
	}
	return !r.Done(), askPause * time.Duration(1+failures)
}

// ask asks one proxy.
func (f *fleet) ask(ctx context.Context, i int, at netip.AddrPort, wait time.Duration) (*inspect.Gone, error) {
	if end, limited := ctx.Deadline(); limited {
		wait = max(0, min(wait, time.Until(end)-early))
	}
	ctx, cancel := context.WithTimeout(ctx, wait+inspect.GoneSearchTime+askTime)
	defer cancel()
	t := &f.Targets[i]
	if t.Err != nil {
		return nil, t.Err
	}
	q := inspect.GoneQuery{At: at, Wait: wait}
	if t.gone != nil {
		return t.gone(ctx, q)
	}
	return t.Client.Gone(ctx, q)
}

var healthServers = http.Client{Transport: &http.Transport{DialContext: (&net.Dialer{Timeout: askTime}).DialContext, DisableKeepAlives: true}}

// over returns how to ask over the network.
func over(base string) func(context.Context, inspect.GoneQuery) (*inspect.Gone, error) {
	return func(ctx context.Context, q inspect.GoneQuery) (*inspect.Gone, error) {
		address := base + inspect.PathEndpoint + inspect.EndpointText(q.At) + "?wait=" + q.Wait.Truncate(time.Millisecond).String()
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
		if err != nil {
			return nil, err
		}
		return get(request)
	}
}

func get(request *http.Request) (*inspect.Gone, error) {
	response, err := healthServers.Do(request)
	if err != nil {
		if inner, ok := errors.AsType[*url.Error](err); ok {
			err = inner.Err // without the URL, which the table has no room for
		}
		return nil, err
	}
	defer response.Body.Close() //nolint:errcheck // it is read to the end
	text, err := io.ReadAll(io.LimitReader(response.Body, answerMax))
	if err != nil {
		return nil, err
	}
	return parse(response, text)
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
