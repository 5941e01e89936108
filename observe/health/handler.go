// SPDX-License-Identifier: Apache-2.0

package health

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/sluice-proxy/sluice/observe/state"
	"github.com/sluice-proxy/sluice/observe/web"
)

// Handler answers /healthz and /livez, and no other path, for any method. Only requests for which details returns true see
// command lines and errors. It reports the path and the status of each answer to answered, on several goroutines.
func Handler(monitor *Monitor, details func(*http.Request) bool, answered func(path string, code int)) http.Handler {
	mux := http.NewServeMux()
	for _, h := range []*handler{{path: "/healthz", considerNode: true}, {path: "/livez"}} {
		h.monitor, h.details, h.answered = monitor, details, answered
		mux.Handle(h.path, h)
	}
	return mux
}

// handler answers one path of the node's health.
type handler struct {
	path string
	// considerNode makes a node that is not eligible answer 503.
	considerNode bool
	monitor      *Monitor
	details      func(*http.Request) bool
	answered     func(path string, code int)
}

// ServeHTTP answers any method.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Has("verbose") {
		h.explain(w, r)
		return
	}
	state := h.monitor.State()
	body := newAnswer(&state, h.considerNode)
	h.reply(w, &state, web.JSON, body.encode())
}

// explain adds what is wrong and what to do.
func (h *handler) explain(w http.ResponseWriter, r *http.Request) {
	report, details := h.monitor.Report(), h.details(r)
	for i := range report.Findings {
		f := &report.Findings[i]
		if f.Kind == NodeNotEligible && !h.considerNode {
			f.Unhealthy = false
		}
		if !details {
			*f = f.Public()
		}
	}
	var services *state.Counts
	if details {
		services = h.monitor.config.Services()
	}
	w.Header().Set("Vary", "Accept")
	if web.PrefersJSON(r.Header.Get("Accept")) {
		body := newAnswer(&report.State, h.considerNode)
		body.Findings, body.Services = report.Findings, services
		h.reply(w, &report.State, web.JSON, body.encode())
		return
	}
	h.reply(w, &report.State, web.Text, writeText(&report, services, h.considerNode))
}

func (h *handler) reply(w http.ResponseWriter, s *State, mediaType string, body []byte) {
	status := code(s, h.considerNode)
	web.Answer(w, status, mediaType, body)
	h.answered(h.path, status)
}

// code returns the status of an answer. Only /healthz considers the node, and whether this process
// serves it: restarting a process that waits would not help.
func code(s *State, considerNode bool) int {
	if considerNode && s.Healthy() && s.NodeEligible && !s.Standby || !considerNode && s.Live() {
		return http.StatusOK
	}
	return http.StatusServiceUnavailable
}

// answer is the body of /healthz and /livez as in kube-proxy v1.37, with findings if verbose.
type answer struct {
	// LastUpdated is the current time in an answer of 200, which old clients take for a sign of
	// life, and otherwise the latest success of any family.
	LastUpdated time.Time `json:"lastUpdated"`
	CurrentTime time.Time `json:"currentTime"`
	// NodeEligible is absent on /livez.
	NodeEligible *bool `json:"nodeEligible,omitempty"`
	// Healthy covers the families only: a node that is not eligible answers 503 with true here. On
	// /healthz it is false while this process waits.
	Healthy  bool                      `json:"healthy"`
	Status   map[string]instanceAnswer `json:"status,omitempty"`
	Findings []Finding                 `json:"findings,omitempty"`
	Services *state.Counts             `json:"services,omitempty"`
}

type instanceAnswer struct {
	LastUpdated time.Time `json:"lastUpdated"`
	Healthy     bool      `json:"healthy"`
}

// newAnswer makes the body without findings.
func newAnswer(s *State, considerNode bool) answer {
	a := answer{
		LastUpdated: s.Updated(), CurrentTime: s.At,
		Healthy: considerNode && s.Healthy() && !s.Standby || !considerNode && s.Live(),
		Status:  make(map[string]instanceAnswer, len(s.Instances)),
	}
	if code(s, considerNode) == http.StatusOK {
		a.LastUpdated = s.At
	}
	if considerNode {
		a.NodeEligible = &s.NodeEligible
	}
	for _, i := range s.Instances {
		a.Status[i.Family.String()] = instanceAnswer{LastUpdated: i.Updated, Healthy: i.Healthy || !considerNode && i.Live}
	}
	return a
}

// encode returns the body. Times of a running process and strings always encode.
func (a *answer) encode() []byte {
	body, err := json.Marshal(a)
	if err != nil {
		return []byte(err.Error())
	}
	return body
}

// word returns one of two words.
func word(first bool, yes, no string) string {
	if first {
		return yes
	}
	return no
}

// writeText renders a report for people.
func writeText(r *Report, services *state.Counts, considerNode bool) []byte {
	var b bytes.Buffer
	status := code(&r.State, considerNode)
	health := r.Health(r.NodeEligible || !considerNode, len(r.Findings))
	if !considerNode && health == Unhealthy && status == http.StatusOK {
		health = Degraded // a restart would not help
	}
	fmt.Fprintf(&b, "%s (%d) at %s\n", health, status, r.At.Format(time.RFC3339))
	for _, i := range r.Instances {
		fmt.Fprintf(&b, "%s: %s, last verified %s ago",
			i.Family, word(i.Healthy, string(Healthy), string(Unhealthy)), age(r.At, i.Updated))
		if !i.Pending.IsZero() {
			fmt.Fprintf(&b, ", a change is pending for %s", age(r.At, i.Pending))
		}
		b.WriteByte('\n')
	}
	if considerNode {
		fmt.Fprintf(&b, "node: %s\n", word(r.NodeEligible, "eligible", "not eligible"))
	}
	if services != nil {
		fmt.Fprintf(&b, "Services: %s\n", services)
	}
	if len(r.Findings) == 0 {
		b.WriteString("\nno problems found\n")
	}
	for i := range r.Findings {
		writeFinding(&b, r.At, &r.Findings[i])
	}
	return b.Bytes()
}

func writeFinding(b *bytes.Buffer, now time.Time, f *Finding) {
	fmt.Fprintf(b, "\n[%s] %s", word(f.Unhealthy, string(Unhealthy), string(Degraded)), f.Kind)
	if f.About != "" {
		fmt.Fprintf(b, " %s", f.About)
	}
	if !f.Since.IsZero() {
		fmt.Fprintf(b, ", since %s", age(now, f.Since))
	}
	fmt.Fprintf(b, "\n  %s\n", f.Problem)
	for _, s := range f.Services {
		fmt.Fprintf(b, "    %s, since %s", s.Service, age(now, s.Since))
		if s.Reason != "" {
			fmt.Fprintf(b, ": %s", s.Reason)
		}
		b.WriteByte('\n')
	}
	if f.More > 0 {
		fmt.Fprintf(b, "    and %d more\n", f.More)
	}
	fmt.Fprintf(b, "  advice: %s\n", f.Advice)
}

// age returns the time since a moment, in whole seconds.
func age(now, since time.Time) string {
	return max(0, now.Sub(since)).Truncate(time.Second).String()
}
