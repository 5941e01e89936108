// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/sluice-proxy/sluice/internal/explain"
	"github.com/sluice-proxy/sluice/observe/state"
	"github.com/sluice-proxy/sluice/service"
)

// Source answers queries about a proxy. All methods may be called concurrently, and do not delay the work of the proxy.
// All but Observe, Gone and Dump return within a few seconds.
type Source interface {
	Status() Status
	// Ready waits until the proxy has received all Services for the first time. After an error, the methods below would
	// return wrong answers.
	Ready(ctx context.Context) error
	// Services calls yield for each wanted Service in the order of the keys, until yield returns false.
	Services(ctx context.Context, wanted func(service.Key) bool, yield func(*Service) bool)
	// Service returns nil for an unknown Service.
	Service(ctx context.Context, key service.Key) *ServiceDetail
	// Endpoints returns nil for an unknown Service.
	Endpoints(ctx context.Context, key service.Key) *EndpointList
	// Connections returns the wanted connections whose numbers exceed above, sorted by number, at most most of them, and
	// whether there are more. It returns an error if the kernel's connections cannot be read.
	Connections(above uint64, most int, wanted func(*Connection) bool) (found []Connection, more bool, err error)
	// Top returns all Services, endpoints or clients of a checked query, unsorted. It returns an error
	// if this mode does not count them.
	Top(ctx context.Context, q TopQuery) (*TopList, error)
	// History returns the traffic of the last 15 minutes of a Service, or of all if of is nil.
	History(ctx context.Context, of *service.Key) (*History, error)
	// Observe calls each with nil once no record is missed, and then with each record, until the context ends or each
	// returns an error.
	Observe(ctx context.Context, q FlowQuery, each func(*FlowEvent) error) error
	// Gone reports whether an endpoint gets no new connections. It waits as long as the query allows, or until the context
	// ends.
	Gone(ctx context.Context, q GoneQuery) *Gone
	// Explain describes how a connection is handled.
	Explain(ctx context.Context, q explain.Flow) (*explain.Answer, error)
	// Events returns the events that the process remembers, the oldest first.
	Events() *EventList
	// Keys returns the keys of all Services, sorted.
	Keys() []service.Key
	// Dump writes an archive for a bug report.
	Dump(ctx context.Context, to io.Writer) error
}

// Headers of every answer.
const (
	headerVersion = "Sluice-Version"
	headerAPI     = "Sluice-Api"
)

const (
	// requestsMax bounds the concurrent requests; further ones get status 429.
	requestsMax = 8
	// answerTime bounds one answer, and dumpTime an archive or all details, so that a client that does not read is
	// disconnected.
	answerTime = 20 * time.Second
	dumpTime   = 2 * time.Minute
)

// parameterBrief asks for a Service without its objects.
const parameterBrief = "brief"

// remoteFlowsMax bounds the streams of records for other hosts. A proxy allows more in total, so that some remain for
// the local socket.
const remoteFlowsMax = 4

// Remote returns a handler for other hosts: it answers the queries that Exposures allows. Authorized is set if each
// caller is checked. The handler has separate limits, so that other hosts cannot use up those of the local socket.
func Remote(version string, source Source, authorized bool) http.Handler {
	answers := newHandler(version, source)
	answers.public = !authorized
	mux, all := http.NewServeMux(), http.Handler(answers)
	paths := map[string]bool{}
	for _, e := range Exposures {
		next := all
		if e.Path == PathFlows {
			next = bounded(make(chan struct{}, remoteFlowsMax), "streams of records are open", all)
		}
		if e.Reach != Local && !paths[e.Path] {
			paths[e.Path] = true
			mux.Handle("GET "+e.Path, exposed(e.Path, version, authorized, next))
		}
	}
	return mux
}

// Handler returns a handler of all paths of the API. Version is the version of the program.
func Handler(version string, source Source) http.Handler { return newHandler(version, source) }

func newHandler(version string, source Source) *handler {
	h := &handler{
		version: version, source: source, places: make(chan struct{}, requestsMax), asking: make(chan struct{}, requestsMax), mux: http.NewServeMux(),
	}
	h.handle(PathStatus, h.status)
	h.handle(PathServices, h.ready(h.services))
	h.handle(PathService, h.ready(h.service))
	h.handle(PathEndpoints, h.ready(h.endpoints))
	h.handle(PathAllDetails, h.ready(ofAll(h, h.detail)))
	h.handle(PathAllEndpoints, h.ready(ofAll(h, h.endpointsOf)))
	h.handle(PathConnections, h.connections)
	h.handle(PathTop, h.ready(h.top))
	h.handle(PathHistory, h.ready(h.history))
	h.add(PathFlows, h.answering(h.flows))
	h.handle(PathNames, h.ready(h.names))
	h.handle(PathExplain, h.explain)
	h.add(PathGone, bounded(h.asking, "questions about endpoints are waiting", h.answering(h.gone)))
	h.handle(PathEvents, h.events)
	h.add(PathDump, bounded(make(chan struct{}, 1), "archive is being made", h.inTime(dumpTime, h.dump)))
	return h
}

type handler struct {
	version string
	source  Source
	// public is set if callers are not checked.
	public bool
	// places bounds the concurrent queries except for two kinds: queries whether an endpoint is gone wait, so asking
	// bounds them separately, and streams of records last until their client disconnects.
	places, asking chan struct{}
	mux            *http.ServeMux
}

// answerFunc returns an answer, or nil if it has written it.
type answerFunc = func(w http.ResponseWriter, r *http.Request) (any, error)

// readyTime bounds the wait until all Services are known: after a start, or while a changed configuration takes over.
const readyTime = 3 * time.Second

// ready lets a query about Services wait until they are known.
func (h *handler) ready(answer answerFunc) answerFunc {
	return func(w http.ResponseWriter, r *http.Request) (any, error) {
		ctx, cancel := context.WithTimeout(r.Context(), readyTime)
		defer cancel()
		if err := h.source.Ready(ctx); err != nil {
			w.Header().Set("Retry-After", "1")
			return nil, failure{http.StatusServiceUnavailable, err.Error()}
		}
		return answer(w, r)
	}
}

// handle adds a path of short queries.
func (h *handler) handle(path string, answer answerFunc) {
	limit := answerTime
	if path == PathAllDetails || path == PathAllEndpoints {
		limit = dumpTime
	}
	h.add(path, h.inTime(limit, answer))
}

// add adds a path.
func (h *handler) add(path string, to http.Handler) {
	if _, known := reach(path, ""); !known {
		panic("inspect: " + path + " is not in Exposures")
	}
	h.mux.Handle("GET "+path, to)
}

// inTime bounds the number of queries and the time of each, so that slow clients delay only themselves.
func (h *handler) inTime(limit time.Duration, answer answerFunc) http.Handler {
	next := h.answering(answer)
	return bounded(h.places, "questions are being answered", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(limit)) // httptest.ResponseRecorder has none
		ctx, cancel := context.WithTimeout(r.Context(), limit)
		defer cancel()
		next.ServeHTTP(w, r.WithContext(ctx))
	}))
}

// bounded bounds the requests in progress by the capacity of places. What describes these requests in the error.
func bounded(places chan struct{}, what string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case places <- struct{}{}:
			defer func() { <-places }()
			next.ServeHTTP(w, r)
		default:
			w.Header().Set("Retry-After", "1")
			fail(w, http.StatusTooManyRequests, fmt.Sprintf("%d %s already; try again", cap(places), what))
		}
	})
}

// answering returns a handler that writes the result of an answerFunc.
func (h *handler) answering(answer answerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		made, err := answer(w, r)
		var failed failure
		switch {
		case errors.As(err, &failed):
			fail(w, failed.code, failed.text)
		case err != nil:
			failed = h.failed(http.StatusInternalServerError, err)
			fail(w, failed.code, failed.text)
		case made != nil:
			write(w, http.StatusOK, h.shown(made))
		}
	})
}

// shown returns what the caller may see of an answer.
func (h *handler) shown(answer any) any {
	if h.public {
		return public(answer)
	}
	return answer
}

// failed returns the answer after an error of the source. The public does not get its text: it may be the kernel's.
func (h *handler) failed(code int, err error) failure {
	text := err.Error()
	if h.public {
		text = "no answer; " + state.Hidden
	}
	return failure{code, text}
}

// failure is an answer other than 200.
type failure struct {
	code int
	text string
}

func (f failure) Error() string { return f.text }

// ServeHTTP implements http.Handler.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set(headerVersion, h.version)
	w.Header().Set(headerAPI, Version)
	w.Header().Set("Cache-Control", "no-store")
	_, pattern := h.mux.Handler(r)
	if pattern == "" {
		fail(w, http.StatusNotFound, fmt.Sprintf("%s %s: no such question", r.Method, r.URL.Path))
		return
	}
	h.mux.ServeHTTP(w, r)
}

func (h *handler) status(http.ResponseWriter, *http.Request) (any, error) {
	s := h.source.Status()
	s.APIVersion = Version
	return &s, nil
}

func (h *handler) services(w http.ResponseWriter, r *http.Request) (any, error) {
	namespace, name := r.URL.Query().Get("namespace"), r.URL.Query().Get("name")
	wanted := func(key service.Key) bool {
		return (namespace == "" || key.Namespace == namespace) && (name == "" || key.Name == name)
	}
	list := listWriter{to: w}
	list.begin()
	h.source.Services(r.Context(), wanted, func(s *Service) bool { return list.item(h.shown(s)) })
	list.end()
	return nil, nil
}

func (h *handler) service(_ http.ResponseWriter, r *http.Request) (any, error) {
	key := keyOf(r)
	found := h.detail(r.Context(), key)
	if found == nil {
		return nil, unknown(key)
	}
	if r.URL.Query().Has(parameterBrief) {
		found.brief()
	}
	return found, nil
}

// detail returns everything about a Service, or nil.
func (h *handler) detail(ctx context.Context, key service.Key) *ServiceDetail {
	found := h.source.Service(ctx, key)
	if found != nil {
		found.APIVersion, found.Now = Version, time.Now().UTC()
	}
	return found
}

// brief leaves out the objects, which are most of a large Service.
func (d *ServiceDetail) brief() {
	for i := range d.Domains {
		d.Domains[i].Omitted += len(d.Domains[i].Objects)
		d.Domains[i].Objects = []Object{}
	}
}

func (h *handler) endpoints(_ http.ResponseWriter, r *http.Request) (any, error) {
	key := keyOf(r)
	if found := h.endpointsOf(r.Context(), key); found != nil {
		return found, nil
	}
	return nil, unknown(key)
}

// endpointsOf returns the endpoints of a Service, or nil.
func (h *handler) endpointsOf(ctx context.Context, key service.Key) *EndpointList {
	found := h.source.Endpoints(ctx, key)
	if found != nil {
		found.APIVersion, found.Now = Version, time.Now().UTC()
	}
	return found
}

func (h *handler) explain(_ http.ResponseWriter, r *http.Request) (any, error) {
	q, err := explain.QuestionIn(r.URL.Query())
	if err != nil {
		return nil, failure{http.StatusBadRequest, err.Error()}
	}
	return h.source.Explain(r.Context(), q)
}

func keyOf(r *http.Request) service.Key {
	return service.Key{Namespace: r.PathValue("namespace"), Name: r.PathValue("name")}
}

func unknown(key service.Key) error { return failure{http.StatusNotFound, Unknown(key.String())} }

// Unknown is the error about a Service that a proxy does not know.
func Unknown(name string) string {
	return fmt.Sprintf("unknown Service %s: this proxy does not have it, or no node serves it and its external IPs: headless, ExternalName, no ClusterIP, "+
		"or the label service.kubernetes.io/service-proxy-name; list the served Services with sluice get services", name)
}

func (h *handler) names(_ http.ResponseWriter, r *http.Request) (any, error) {
	namespace := r.URL.Query().Get("namespace")
	names := Names{APIVersion: Version, Namespaces: []string{}, Services: []string{}}
	for _, key := range h.source.Keys() {
		if last := len(names.Namespaces) - 1; last < 0 || names.Namespaces[last] != key.Namespace {
			names.Namespaces = append(names.Namespaces, key.Namespace)
		}
		switch namespace {
		case "":
			names.Services = append(names.Services, key.String())
		case key.Namespace:
			names.Services = append(names.Services, key.Name)
		}
	}
	return &names, nil
}

func (h *handler) dump(w http.ResponseWriter, r *http.Request) (any, error) {
	w.Header().Set("Content-Type", "application/gzip")
	w.WriteHeader(http.StatusOK)
	_ = http.NewResponseController(w).Flush() // the client learns that an answer begins; a recorder of tests has no buffer
	if err := h.source.Dump(r.Context(), w); err != nil {
		// The status is already sent, so only a broken connection can tell the client of the error.
		panic(http.ErrAbortHandler)
	}
	return nil, nil
}

func fail(w http.ResponseWriter, code int, text string) { write(w, code, Failure{Error: text}) }

// write writes an answer. An error means that the client disconnected.
func write(w http.ResponseWriter, code int, made any) {
	text, err := json.Marshal(made)
	if err != nil {
		panic(fmt.Sprintf("inspect: plain values that JSON cannot express: %v", err))
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(append(text, '\n'))
}
