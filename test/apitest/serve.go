// SPDX-License-Identifier: Apache-2.0

package apitest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	"k8s.io/apimachinery/pkg/watch"
)

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	if words := strings.SplitN(r.URL.EscapedPath(), "/", 9); len(words) == 9 && words[5] == Pods && words[7] == "proxy" {
		s.pass(w, r, words[4], words[6])
		return
	}
	name := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
	query := r.URL.Query()
	s.mu.Lock()
	s.requests = append(s.requests, Request{name, query, r.Header.Get("Accept")})
	rejection := s.judge(name, r.Method, query)
	s.mu.Unlock()
	sel, err := selectionOf(name, query)
	if err != nil && rejection == nil {
		rejection = apierrors.NewBadRequest(err.Error())
	}
	switch {
	case rejection != nil:
		rejected(w, rejection)
	case r.Method == http.MethodPost && name != events:
		s.review(w, r)
	case r.Method == http.MethodPost:
		s.create(w, r)
	case query.Get("watch") != "":
		s.watch(w, r, name, sel)
	default:
		s.list(w, r, name, sel)
	}
}

// pass passes a request for a pod on, as a real server does: with its own name as the host, and without credentials.
func (s *Server) pass(w http.ResponseWriter, r *http.Request, namespace, pod string) {
	s.mu.Lock()
	rejection, to := s.reject["pods/proxy"], http.Handler(nil)
	if s.proxied != nil {
		to = s.proxied(namespace, pod)
	}
	s.mu.Unlock()
	switch {
	case rejection != nil:
		rejected(w, rejection)
	case to == nil:
		rejected(w, apierrors.NewServiceUnavailable("error trying to reach service: dial tcp: connect: connection refused"))
	default:
		r.Header.Del("Authorization")
		http.StripPrefix("/api/v1/namespaces/"+namespace+"/pods/"+pod+"/proxy", to).ServeHTTP(w, r)
	}
}

// judge rejects what a real server would. The lock is held.
func (s *Server) judge(name, method string, query url.Values) *apierrors.StatusError {
	version, _ := strconv.Atoi(query.Get("resourceVersion")) // none is 0
	streamed := query.Get("sendInitialEvents") != ""
	_, served := resources[name]
	switch {
	case s.reject[name] != nil:
		return s.reject[name]
	case method == http.MethodPost && (name == events || name == TokenReviews || name == SubjectAccessReviews || name == Token):
		return nil
	case !served || method != http.MethodGet:
		return apierrors.NewMethodNotSupported(schema.GroupResource{Resource: name}, method)
	case streamed && !s.streams:
		return apierrors.NewInvalid(schema.GroupKind{Kind: "ListOptions"}, "", nil)
	case s.quorumless && query.Get("resourceVersion") == "":
		return apierrors.NewInternalError(errors.New("etcdserver: request timed out"))
	case version > s.store.version:
		err := apierrors.NewTimeoutError("Too large resource version", 1)
		err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge}}
		return err
	case query.Get("watch") != "" && !streamed && version < s.store.oldest:
		return apierrors.NewResourceExpired("too old resource version")
	default:
		return nil
	}
}

// rejected answers with a status. Here and below, a client that has gone is no error.
func rejected(w http.ResponseWriter, rejection *apierrors.StatusError) {
	status := rejection.Status()
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(int(status.Code))
	_ = json.NewEncoder(w).Encode(status)
}

func (s *Server) list(w http.ResponseWriter, r *http.Request, name string, sel selection) {
	info, err := negotiate(r)
	if err != nil {
		rejected(w, apierrors.NewBadRequest(err.Error()))
		return
	}
	s.mu.Lock()
	list := resources[name].list.DeepCopyObject()
	from := s.store
	if s.lagging != nil && r.URL.Query().Get("resourceVersion") == "0" {
		from = s.lagging
	}
	err = meta.SetList(list, from.selected(name, sel))
	if accessor, ok := list.(metav1.ListInterface); ok {
		accessor.SetResourceVersion(strconv.Itoa(from.version))
	}
	s.mu.Unlock()
	if err != nil {
		rejected(w, apierrors.NewInternalError(err))
		return
	}
	w.Header().Set("Content-Type", info.MediaType)
	_ = codecs.EncoderForVersion(info.Serializer, resources[name].version).Encode(list, w)
}

// create takes an event.
func (s *Server) create(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err == nil {
		var event eventsv1.Event
		if _, _, err = codecs.UniversalDeserializer().Decode(body, nil, &event); err == nil {
			s.mu.Lock()
			s.events = append(s.events, &event)
			s.mu.Unlock()
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusCreated)
			_ = codecs.EncoderForVersion(jsonSerializer, eventsv1.SchemeGroupVersion).Encode(&event, w)
			return
		}
	}
	rejected(w, apierrors.NewBadRequest(fmt.Sprintf("event: %v", err)))
}

// Request is one request of a client.
type Request struct {
	Resource string
	Query    url.Values
	// Accept is the header Accept: media types, the best one first.
	Accept string
}

// negotiate returns the serializer of the type that a client prefers.
func negotiate(r *http.Request) (runtime.SerializerInfo, error) {
	first, _, _ := strings.Cut(r.Header.Get("Accept"), ",")
	media, _, err := mime.ParseMediaType(first)
	if err != nil {
		media = runtime.ContentTypeJSON
	}
	info, ok := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), media)
	if !ok {
		return info, fmt.Errorf("the client accepts %q only", r.Header.Get("Accept"))
	}
	return info, nil
}

// jsonSerializer writes answers that do not depend on what the client prefers.
var jsonSerializer = func() runtime.Serializer {
	info, ok := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), runtime.ContentTypeJSON)
	if !ok {
		panic("apimachinery without JSON")
	}
	return info.Serializer
}()

// watcher is one client that watches a selection.
type watcher struct {
	name  string
	sel   selection
	at    int // version up to which it knows everything
	inner runtime.Encoder
	out   streaming.Encoder
	flush *http.ResponseController
}

func (s *Server) watch(w http.ResponseWriter, r *http.Request, name string, sel selection) {
	info, err := negotiate(r)
	if err != nil {
		rejected(w, apierrors.NewBadRequest(err.Error()))
		return
	}
	version := resources[name].version
	w.Header().Set("Content-Type", info.MediaType+";stream=watch")
	w.WriteHeader(http.StatusOK)
	c := &watcher{
		name: name, sel: sel, flush: http.NewResponseController(w),
		inner: codecs.EncoderForVersion(info.Serializer, version),
		out: streaming.NewEncoder(info.StreamSerializer.NewFrameWriter(w),
			codecs.EncoderForVersion(info.StreamSerializer.Serializer, version)),
	}
	c.at, _ = strconv.Atoi(r.URL.Query().Get("resourceVersion")) // none is 0
	if r.URL.Query().Get("sendInitialEvents") == "true" {
		err = s.sendInitial(c)
	}
	for err == nil {
		var changed <-chan struct{}
		if changed, err = s.sendNews(c); err != nil {
			return
		}
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
	}
}

// sendInitial streams the objects and the bookmark that ends them (KEP-3157).
func (s *Server) sendInitial(c *watcher) error {
	s.mu.Lock()
	at, all := s.store.version, s.store.selected(c.name, c.sel)
	s.mu.Unlock()
	for _, object := range all {
		if err := c.send(watch.Added, object); err != nil {
			return err
		}
	}
	c.at = at
	bookmark := resources[c.name].single.DeepCopyObject()
	accessor := accessorOf(bookmark)
	accessor.SetResourceVersion(strconv.Itoa(at))
	accessor.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	return c.send(watch.Bookmark, bookmark)
}

// sendNews sends the changes since the last call, and returns a channel that the next change
// closes.
func (s *Server) sendNews(c *watcher) (<-chan struct{}, error) {
	s.mu.Lock()
	news, changed, oldest := s.store.since(c.name, c.at, c.sel), s.changed, s.store.oldest
	s.mu.Unlock()
	if c.at < oldest {
		expired := apierrors.NewResourceExpired("too old resource version")
		status := expired.Status()
		if err := c.send(watch.Error, &status); err != nil {
			return nil, err
		}
		return nil, expired
	}
	for _, n := range news {
		if err := c.send(n.kind, n.object); err != nil {
			return nil, err
		}
		c.at = n.version
	}
	return changed, c.flush.Flush()
}

func (c *watcher) send(kind watch.EventType, object runtime.Object) error {
	raw, err := runtime.Encode(c.inner, object)
	if err != nil {
		return err
	}
	return c.out.Encode(&metav1.WatchEvent{Type: string(kind), Object: runtime.RawExtension{Raw: raw}})
}
