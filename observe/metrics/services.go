package metrics

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/sluice-proxy/sluice/service"
)

// ServicesHandler serves /metrics/services: what each Service has been through, as
// Prometheus text, or as JSON to those who ask for it (format=json, or Accept).
// The parameters namespace, name, top and limit choose; an answer is bounded by
// 1,000 Services unless limit says otherwise (0 for all), and says how many were
// left out. A parameter that cannot be understood is refused with status 400.
func (m *Metrics) ServicesHandler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "want GET", http.StatusMethodNotAllowed)
			return
		}
		q, err := parseQuery(r.URL.Query())
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		answer := m.answer(r.Context(), &q)
		if q.json || strings.Contains(r.Header.Get("Accept"), "application/json") && !r.URL.Query().Has("format") {
			w.Header().Set("Content-Type", "application/json")
			answer.writeJSON(w)
			return
		}
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		answer.writeText(w)
	})
}

// answer finds what a query asks for.
func (m *Metrics) answer(ctx context.Context, q *query) services {
	lines, omitted := q.answer(m.roster.copy(q.wants))
	return services{lines: lines, omitted: omitted, held: m.held(), traffic: m.traffic(ctx)}
}

// services is an answer to be written.
type services struct {
	lines   []line
	omitted int
	held    map[service.Key][]held
	traffic service.PerFamily[map[service.Key]Traffic]
}

// held is one domain's quarantine of a Service.
type held struct {
	domain string
	since  time.Time
	reason string
}

// held asks the domains for the Services that they hold back.
func (m *Metrics) held() map[service.Key][]held {
	asked := m.sources.Load()
	if asked == nil {
		return nil
	}
	all := map[service.Key][]held{}
	for _, s := range asked.status() {
		for _, q := range s.Quarantined {
			all[q.Key] = append(all[q.Key], held{domain: s.Domain, since: q.Since, reason: q.Reason})
		}
	}
	return all
}
