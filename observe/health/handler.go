package health

import "net/http"

// handler answers one path of the node's health.
type handler struct {
	path string
	// considerNode makes a node that is not eligible answer 503.
	considerNode bool
	monitor      *Monitor
	answered     func(path string, code int)
}

// newHandler answers /healthz and /livez, and nothing else.
func newHandler(monitor *Monitor, answered func(path string, code int)) http.Handler {
	mux := http.NewServeMux()
	for _, h := range []*handler{{path: "/healthz", considerNode: true}, {path: "/livez"}} {
		h.monitor, h.answered = monitor, answered
		mux.Handle(h.path, h)
	}
	return mux
}

// ServeHTTP answers any method.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Has("verbose") {
		h.explain(w, r)
		return
	}
	state := h.monitor.State()
	body := newAnswer(&state, h.considerNode)
	h.reply(w, &state, "application/json", body.encode())
}

// explain says besides what is wrong and what to do about it.
func (h *handler) explain(w http.ResponseWriter, r *http.Request) {
	report := h.monitor.Report()
	if !h.considerNode {
		for i := range report.Findings {
			if f := &report.Findings[i]; f.Kind == NodeNotEligible {
				f.Unhealthy = false
			}
		}
	}
	w.Header().Set("Vary", "Accept")
	if prefersJSON(r.Header.Get("Accept")) {
		body := newAnswer(&report.State, h.considerNode)
		body.add(report.Findings)
		h.reply(w, &report.State, "application/json", body.encode())
		return
	}
	h.reply(w, &report.State, "text/plain; charset=utf-8", writeText(&report, h.considerNode))
}

func (h *handler) reply(w http.ResponseWriter, s *State, kind string, body []byte) {
	status := code(s, h.considerNode)
	w.Header().Set("Content-Type", kind)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(body) // who has gone does not need it
	h.answered(h.path, status)
}
