package gone

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

// Path is where Handler answers: the rest of the path is an endpoint.
const Path = "/endpoints/"

// Node is a node and how its proxy is asked.
type Node struct {
	Name string
	Ask  func(context.Context, inspect.GoneQuery) (*inspect.Gone, error)
}

// Proxies are those of all nodes. Each is asked until the endpoint is gone there.
type Proxies struct {
	Nodes []Node
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

// Cluster returns the nodes of a cluster, whose proxies answer at a port.
func Cluster(ctx context.Context, kubeconfig, userAgent string, port uint16) (nodes []Node, err error) {
	found, err := kube.NodeAddresses(ctx, kube.Config{Kubeconfig: kubeconfig, UserAgent: userAgent})
	if err == nil && len(found) == 0 {
		err = errors.New("the cluster has no Nodes")
	}
	for _, node := range found {
		nodes = append(nodes, Of(node, port))
	}
	return nodes, err
}

// Of returns a node of the cluster whose proxy answers at a port.
func Of(node kube.NodeAddress, port uint16) Node {
	if node.Addr.IsValid() {
		return Node{node.Name, over("http://" + netip.AddrPortFrom(node.Addr, port).String())}
	}
	return Node{node.Name, func(context.Context, inspect.GoneQuery) (*inspect.Gone, error) {
		return nil, errors.New("the Node has no InternalIP")
	}}
}

// At returns the node whose proxy answers at a URL.
func At(text string) (Node, error) {
	at, err := url.Parse(text)
	if err != nil || at.Scheme != "http" || at.Host == "" || at.Path != "" && at.Path != "/" || at.RawQuery != "" {
		return Node{}, fmt.Errorf("%q: must be a URL without a path, such as http://192.0.2.1:10256", text)
	}
	return Node{at.Host, over("http://" + at.Host)}, nil
}

// Wait asks all proxies until the endpoint is gone everywhere, or the context ends. It returns a result for each.
func (p *Proxies) Wait(ctx context.Context, at netip.AddrPort) []Result {
	f := &fleet{Proxies: p, began: time.Now(), places: make(chan struct{}, asksMax), results: make([]Result, len(p.Nodes)), wait: askWait}
	if len(p.Nodes) > asksMax {
		f.wait = 0
	}
	for i := range p.Nodes {
		f.results[i] = Result{Node: p.Nodes[i].Name, Err: errors.New("no answer yet")}
	}
	var all sync.WaitGroup
	for i := range p.Nodes {
		all.Go(func() { f.follow(ctx, i, at) })
	}
	all.Wait()
	return f.results
}

// fleet is a Wait in progress.
type fleet struct {
	*Proxies
	wait   time.Duration
	began  time.Time
	places chan struct{}

	mu      sync.Mutex
	results []Result
}

// follow asks one proxy again and again.
func (f *fleet) follow(ctx context.Context, i int, at netip.AddrPort) {
	for failures := 0; ; {
		select {
		case f.places <- struct{}{}:
		case <-ctx.Done():
			return
		}
		a, err := f.ask(ctx, i, at, f.waitOf(i, failures))
		<-f.places
		if ctx.Err() != nil && err != nil {
			return // the last result stays
		}
		if failures++; err == nil {
			failures = 0
		}
		if f.note(i, a, err, failures) {
			return
		}
		select {
		case <-time.After(askPause * time.Duration(1+failures)):
		case <-ctx.Done():
			return
		}
	}
}

// waitOf returns how long the next answer may wait. The first one must not, so that the state is known from the beginning,
// and no answer after a failure: something between may end long requests.
func (f *fleet) waitOf(i, failures int) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	if failures > 0 || !f.results[i].Answered {
		return 0
	}
	return f.wait
}

// note keeps a result, and reports whether it is the last one. A failure after an answer counts once the question after it,
// which does not wait, failed as well.
func (f *fleet) note(i int, a *inspect.Gone, err error, failures int) (done bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
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
	return r.Done()
}

// ask asks one proxy.
func (f *fleet) ask(ctx context.Context, i int, at netip.AddrPort, wait time.Duration) (*inspect.Gone, error) {
	if end, limited := ctx.Deadline(); limited {
		wait = max(0, min(wait, time.Until(end)-early))
	}
	ctx, cancel := context.WithTimeout(ctx, wait+inspect.GoneSearchTime+askTime)
	defer cancel()
	return f.Nodes[i].Ask(ctx, inspect.GoneQuery{At: at, Wait: wait})
}

var client = http.Client{Transport: &http.Transport{DialContext: (&net.Dialer{Timeout: askTime}).DialContext, DisableKeepAlives: true}}

// over returns how to ask over the network.
func over(base string) func(context.Context, inspect.GoneQuery) (*inspect.Gone, error) {
	return func(ctx context.Context, q inspect.GoneQuery) (*inspect.Gone, error) {
		address := base + Path + inspect.EndpointText(q.At) + "?wait=" + q.Wait.Truncate(time.Millisecond).String()
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
		if err != nil {
			return nil, err
		}
		return get(request)
	}
}

func get(request *http.Request) (*inspect.Gone, error) {
	response, err := client.Do(request)
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
