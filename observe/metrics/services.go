// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/sluice-proxy/sluice/dataplane/traffic"
	"github.com/sluice-proxy/sluice/observe/book"
	"github.com/sluice-proxy/sluice/observe/state"
	"github.com/sluice-proxy/sluice/service"
)

// ServicesHandler serves /metrics/services: the metrics of single Services, in the forms of
// /metrics. The parameters namespace, name, top and limit select. An answer contains at most 1,000
// Services unless limit sets another maximum (0 for all), and the number of those left out. An
// invalid parameter gets status 400.
func (m *Metrics) ServicesHandler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "method must be GET", http.StatusMethodNotAllowed)
			return
		}
		q, err := parseQuery(r.URL.Query())
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		registry := prometheus.NewRegistry()
		registry.MustRegister(collector{serviceDescs(), m.answer(r.Context(), &q).collect})
		promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(w, r)
	})
}

// query selects Services.
type query struct {
	// namespace and name select by equality; if empty they select all.
	namespace, name string
	// top selects that many Services: those in quarantine, then those that are shadowed, then those
	// with the longest time from receipt to kernel. 0 selects all.
	top int
	// limit bounds the answer; 0 does not.
	limit int
}

// limitDefault bounds an answer without the parameter limit. A thousand Services make about a
// megabyte of text.
const limitDefault = 1000

var queryParameters = []string{"limit", "name", "namespace", "top"}

// parseQuery reads the parameters of /metrics/services.
func parseQuery(values url.Values) (q query, err error) {
	for name, all := range values {
		if !slices.Contains(queryParameters, name) {
			return q, fmt.Errorf("parameter %q: must be one of %q", name, queryParameters)
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
	return q, nil
}

func number(values url.Values, name string, otherwise int) (int, error) {
	text := values.Get(name)
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("parameter %q: %q: must be a number that is not negative", name, text)
	}
	return n, nil
}

// wants reports whether a Service is selected. The node's own actor is not a Service.
func (q *query) wants(key service.Key) bool {
	return key != service.Node &&
		(q.namespace == "" || key.Namespace == q.namespace) && (q.name == "" || key.Name == q.name)
}

// cut drops the rows beyond the bounds, and returns how many it dropped. It drops quarantined Services last, and
// shadowed ones before them.
func (q *query) cut(rows []book.Row) (kept []book.Row, omitted int) {
	most := len(rows)
	if q.top > 0 {
		most = min(most, q.top)
	}
	if q.limit > 0 {
		most = min(most, q.limit)
	}
	if most < len(rows) {
		slices.SortFunc(rows, func(a, b book.Row) int {
			slower := 0
			if q.top > 0 {
				slower = cmp.Compare(b.Longest(), a.Longest())
			}
			return cmp.Or(cmp.Compare(a.Rank(), b.Rank()), slower, a.Key.Compare(b.Key))
		})
	}
	return rows[:most], len(rows) - most
}

// answer has what a query asks for.
type answer struct {
	records []state.Record
	omitted int
	mode    string
	// reasons are those that the mode counts.
	reasons  []traffic.Reason
	readings service.PerFamily[*traffic.Reading]
	counted  counted
	// relays is set if this process forwards.
	relays bool
	// flows is nil if the connection table is not read continuously.
	flows *traffic.Flows
}

func (m *Metrics) answer(ctx context.Context, q *query) *answer {
	a := &answer{mode: m.config.Mode, reasons: m.config.Refusals, relays: m.config.Relayed != nil}
	if m.config.Refresh != nil {
		m.config.Refresh(ctx)
	}
	if last := m.lastReading.Load(); last != nil {
		a.readings = *last
	}
	a.counted = m.sum(a.readings)
	rows, omitted := q.cut(m.config.Book.Look().Each(q.wants))
	a.omitted, a.records = omitted, make([]state.Record, len(rows))
	for i := range rows {
		a.records[i] = rows[i].Record()
		if a.relays {
			a.counted[rows[i].Key] = m.config.Relayed(rows[i].Key)
		}
	}
	if m.config.Flows != nil {
		a.flows = m.config.Flows()
	}
	return a
}
