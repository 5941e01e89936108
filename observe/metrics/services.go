package metrics

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"github.com/sluice-proxy/sluice/observe/web"
	"github.com/sluice-proxy/sluice/service"
)

// ServicesHandler serves /metrics/services: the history of each Service, as Prometheus text, or as
// JSON for clients that ask for it (format=json, or Accept). The parameters namespace, name, top
// and limit select. An answer has at most 1,000 Services unless limit says otherwise (0 for all),
// and the number of those left out. An invalid parameter gets status 400.
func (m *Metrics) ServicesHandler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "want GET", http.StatusMethodNotAllowed)
			return
		}
		parameters := r.URL.Query()
		q, err := parseQuery(parameters)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		answer := m.answer(r.Context(), &q)
		if q.json || !parameters.Has("format") && web.Quality(r.Header.Get("Accept"), web.JSON) > 0 {
			w.Header().Set("Content-Type", web.JSON)
			answer.writeJSON(w)
			return
		}
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		answer.writeText(w)
	})
}

// query selects Services.
type query struct {
	// namespace and name select by equality; if empty they select all.
	namespace, name string
	// top selects that many Services: those in quarantine, then those that are shadowed, then those
	// with the longest time from receipt to kernel. With 0 the answer is in the order of the keys.
	top int
	// limit bounds the answer; 0 does not.
	limit int
	json  bool
}

// limitDefault bounds an answer without the parameter limit. A thousand Services make about a
// megabyte of text.
const limitDefault = 1000

var queryParameters = []string{"format", "limit", "name", "namespace", "top"}

// parseQuery reads the parameters of /metrics/services.
func parseQuery(values url.Values) (q query, err error) {
	for name, all := range values {
		if !slices.Contains(queryParameters, name) {
			return q, fmt.Errorf("parameter %q: want one of %q", name, queryParameters)
		}
		if len(all) != 1 {
			return q, fmt.Errorf("parameter %q: given %d times; once is enough", name, len(all))
		}
	}
	q.namespace, q.name = values.Get("namespace"), values.Get("name")
	if q.top, err = number(values, "top", 0); err != nil {
		return q, err
	}
	if q.limit, err = number(values, "limit", limitDefault); err != nil {
		return q, err
	}
	if q.top > 0 && !values.Has("limit") {
		q.limit = 0 // top bounds the answer already
	}
	switch format := values.Get("format"); format {
	case "", "text":
	case "json":
		q.json = true
	default:
		return q, fmt.Errorf("parameter \"format\": %q: want json or text", format)
	}
	return q, nil
}

func number(values url.Values, name string, otherwise int) (int, error) {
	text := values.Get(name)
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("parameter %q: %q: want a number, not negative", name, text)
	}
	return n, nil
}

// wants reports whether a Service is selected. The node's own actor is not a Service.
func (q *query) wants(key service.Key) bool {
	return key != service.Node &&
		(q.namespace == "" || key.Namespace == q.namespace) && (q.name == "" || key.Name == q.name)
}

// cut sorts the rows, drops those beyond the bounds, and returns how many it dropped. Whatever the
// bounds, it drops Services that are served before it drops those of a lower rank.
func (q *query) cut(rows []row, rank func(service.Key) int) (kept []row, omitted int) {
	most := len(rows)
	if q.top > 0 {
		most = min(most, q.top)
	}
	if q.limit > 0 {
		most = min(most, q.limit)
	}
	byKey := func(a, b row) int { return a.key.Compare(b.key) }
	if q.top > 0 || most < len(rows) {
		slices.SortFunc(rows, func(a, b row) int {
			slower := 0
			if q.top > 0 {
				slower = cmp.Compare(b.received.Longest, a.received.Longest)
			}
			return cmp.Or(cmp.Compare(rank(a.key), rank(b.key)), slower, byKey(a, b))
		})
	}
	kept, omitted = rows[:most], len(rows)-most
	if q.top == 0 {
		slices.SortFunc(kept, byKey)
	}
	return kept, omitted
}

// answer has what a query asks for.
type answer struct {
	rows        []row
	omitted     int
	quarantined map[service.Key][]quarantine
	shadowed    map[service.Key]bool
	counted     service.PerFamily[map[service.Key]Counters]
	relayed     map[service.Key]service.PerFamily[*Relayed]
}

// quarantine is one domain's quarantine of a Service.
type quarantine struct {
	Domain string `json:"domain"`
	rejection
}

func (m *Metrics) answer(ctx context.Context, q *query) *answer {
	a := &answer{quarantined: map[service.Key][]quarantine{}, counted: m.counted(ctx)}
	for _, s := range m.status() {
		for _, q := range s.Quarantined {
			a.quarantined[q.Key] = append(a.quarantined[q.Key], quarantine{s.Domain, rejectionOf(&q)})
		}
	}
	if m.config.Shadowed != nil {
		a.shadowed = m.config.Shadowed()
	}
	a.rows, a.omitted = q.cut(m.records.copy(q.wants), a.rank)
	a.relayed = m.relayedFor(a.rows)
	return a
}

// rank orders Services by how much they lack, the gravest first.
func (a *answer) rank(key service.Key) int {
	switch {
	case a.quarantined[key] != nil:
		return 0
	case a.shadowed[key]:
		return 1
	default:
		return 2
	}
}
