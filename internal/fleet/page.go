// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"embed"
	"encoding/json"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/sluice-proxy/sluice/internal/inspect"
	"github.com/sluice-proxy/sluice/internal/ui"
)

//go:embed assets
var assets embed.FS

const (
	// pageRefresh is the pause between two rounds while a page is open.
	pageRefresh = 10 * time.Second
	// namedMax bounds the nodes and the reasons that an answer names for one Service.
	namedMax = 20
)

// page shows a browser on this host the state of all nodes. A request for the state begins a round of queries if the
// last round is old, so there are no more rounds soon after the page is closed.
//
// Concurrency: mu guards the fields below it. A round and a query about a Service take turns.
type page struct {
	c     *cluster
	ends  context.Context // rounds outlive the requests that began them, but not the program
	turn  chan struct{}
	tally tally

	mu      sync.Mutex
	rounds  sync.WaitGroup
	running bool
	ended   time.Time
	state   pageState
}

// pageState is what the page polls. Overview is nil if the page has it already.
type pageState struct {
	Round    int       `json:"round"`
	Running  bool      `json:"running"`
	Done     int64     `json:"done"`
	All      int64     `json:"all"`
	Error    string    `json:"error,omitempty"`
	Overview *overview `json:"overview,omitempty"`
}

// overview is the result of a round.
type overview struct {
	*statusReport
	At time.Time `json:"at"`
	// Findings are those of each node.
	Findings map[string][]inspect.Finding `json:"findings"`
	Held     []*heldService               `json:"quarantine"`
	// Namespace is that of the pods of Sluice.
	Namespace string `json:"namespace"`
}

// heldService is a Service that some nodes hold.
type heldService struct {
	Service string `json:"service"`
	// Count is the number of nodes; Nodes and Reasons contain the first namedMax.
	Count   int      `json:"count"`
	Nodes   []string `json:"nodes"`
	Reasons []string `json:"reasons"`
}

func newPage(ctx context.Context, c *cluster) *page {
	p := &page{c: c, ends: ctx, turn: make(chan struct{}, 1)}
	c.flags.tally = &p.tally
	return p
}

// handler serves the page at an address below a secret path. The path prevents other users of this host, and pages of
// other sites, from using the user's rights. The Host header must be the address, against DNS rebinding.
func (p *page) handler(address string) (secret string, _ http.Handler) {
	secret = "/" + rand.Text() + "/"
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+secret+"api/status", p.status)
	mux.HandleFunc("GET "+secret+"api/where/{namespace}/{name}", p.where)
	mux.Handle("GET "+secret, ui.Files(secret, assets))
	guarded := ui.Guard(mux)
	_, port, _ := net.SplitHostPort(address)
	return secret, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Host != address && r.Host != "localhost:"+port {
			http.Error(w, "this page is at http://"+address+" only; open the address that kubectl sluice ui printed", http.StatusForbidden)
			return
		}
		begin := r.URL.Path[:min(len(r.URL.Path), len(secret))]
		if subtle.ConstantTimeCompare([]byte(begin), []byte(secret)) != 1 {
			http.NotFound(w, r)
			return
		}
		guarded.ServeHTTP(w, r)
	})
}

// status returns the result of the last round. since is the round that the page has already; now requests a new round.
func (p *page) status(w http.ResponseWriter, r *http.Request) {
	since, _ := strconv.Atoi(r.URL.Query().Get("since"))
	p.mu.Lock()
	if !p.running && p.ends.Err() == nil && (r.URL.Query().Has("now") || time.Since(p.ended) >= pageRefresh) {
		p.running = true
		p.rounds.Go(p.round)
	}
	made := p.state
	made.Running = p.running
	p.mu.Unlock()
	made.Done, made.All = p.tally.done.Load(), p.tally.all.Load()
	if made.Round == since {
		made.Overview = nil
	}
	reply(w, http.StatusOK, made)
}

// round asks all nodes once.
func (p *page) round() {
	var report *statusReport
	err := p.ends.Err()
	if p.take(p.ends) {
		report, err = p.c.status(p.ends, false)
		<-p.turn
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running, p.ended, p.state.Error = false, time.Now(), ""
	if err != nil {
		p.state.Error = err.Error()
		return
	}
	p.state.Round++
	p.state.Overview = overviewOf(report, p.c.flags.proxyNamespace)
}

// take waits for the turn.
func (p *page) take(ctx context.Context) bool {
	select {
	case p.turn <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// where returns the state of a Service on all nodes.
func (p *page) where(w http.ResponseWriter, r *http.Request) {
	if !p.take(r.Context()) {
		return
	}
	defer func() { <-p.turn }()
	of := *p.c
	of.namespace = r.PathValue("namespace")
	report, err := of.where(r.Context(), r.PathValue("name"))
	if err != nil {
		reply(w, http.StatusBadGateway, inspect.Failure{Error: err.Error()})
		return
	}
	reply(w, http.StatusOK, report)
}

func reply(w http.ResponseWriter, code int, made any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(made) // an error means that the browser closed the page
}

// overviewOf groups the held Services of all nodes. Findings name only some of those parked.
func overviewOf(r *statusReport, namespace string) *overview {
	o := &overview{statusReport: r, At: r.now, Findings: map[string][]inspect.Finding{},
		Held: []*heldService{}, Namespace: namespace}
	held := map[string]*heldService{}
	for i := range r.Nodes {
		n := &r.Nodes[i]
		if len(n.from.Findings) > 0 {
			o.Findings[n.Node] = n.from.Findings
		}
		seen := map[string]bool{} // a Service may be in several domains
		holds := func(name, reason string) {
			s := held[name]
			if s == nil {
				s = &heldService{Service: name}
				held[name] = s
			}
			if !seen[name] {
				seen[name] = true
				s.Count++
				s.Nodes = appendNamed(s.Nodes, n.Node)
			}
			s.Reasons = appendNamed(s.Reasons, inspect.OneLine(reason))
		}
		for d := range n.from.Domains {
			for _, q := range n.from.Domains[d].Quarantined {
				holds(q.Namespace+"/"+q.Name, q.Reason)
			}
		}
		for i := range n.from.Findings { // without a quarantine
			if f := &n.from.Findings[i]; f.Kind == "parked" {
				for _, name := range f.Services {
					holds(name, f.Kind)
				}
			}
		}
		n.from = nil // the rest is not shown
	}
	o.Held = slices.AppendSeq(o.Held, maps.Values(held))
	slices.SortFunc(o.Held, func(a, b *heldService) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Service, b.Service))
	})
	return o
}

// appendNamed adds a text that is missing, up to namedMax texts.
func appendNamed(all []string, one string) []string {
	if len(all) >= namedMax || slices.Contains(all, one) {
		return all
	}
	return append(all, one)
}
