package apitest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Readyz stands for the path at which a server says whether it is ready. Refuse and
// Asked take it as they take a resource.
const Readyz = "readyz"

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	name := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
	query := r.URL.Query()
	s.mu.Lock()
	s.requests = append(s.requests, Request{name, query, r.Header.Get("Accept")})
	refusal := s.judge(name, r.Method, query)
	s.mu.Unlock()
	sel, err := selectionOf(name, query)
	if err != nil && refusal == nil {
		refusal = apierrors.NewBadRequest(err.Error())
	}
	switch {
	case refusal != nil:
		refused(w, refusal)
	case name == Readyz:
		_, _ = io.WriteString(w, "ok")
	case r.Method == http.MethodPost:
		s.create(w, r)
	case query.Get("watch") != "":
		s.watch(w, r, name, sel)
	default:
		s.list(w, r, name, sel)
	}
}

// judge refuses what a real server would. The lock is held.
func (s *Server) judge(name, method string, query url.Values) *apierrors.StatusError {
	version, _ := strconv.Atoi(query.Get("resourceVersion")) // none is 0
	streamed := query.Get("sendInitialEvents") != ""
	_, served := resources[name]
	switch {
	case s.refuse[name] != nil:
		return s.refuse[name]
	case name == events && method == http.MethodPost, name == Readyz && method == http.MethodGet:
		return nil
	case !served || method != http.MethodGet:
		return apierrors.NewMethodNotSupported(schema.GroupResource{Resource: name}, method)
	case streamed && !s.streams:
		return apierrors.NewInvalid(schema.GroupKind{Kind: "ListOptions"}, "", nil)
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

// refused answers with a status. That the client has gone is its own business,
// here and below.
func refused(w http.ResponseWriter, refusal *apierrors.StatusError) {
	status := refusal.Status()
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(int(status.Code))
	_ = json.NewEncoder(w).Encode(status)
}

func (s *Server) list(w http.ResponseWriter, r *http.Request, name string, sel selection) {
	info, err := negotiate(r)
	if err != nil {
		refused(w, apierrors.NewBadRequest(err.Error()))
		return
	}
	s.mu.Lock()
	list := resources[name].list.DeepCopyObject()
	err = meta.SetList(list, s.store.selected(name, sel))
	if accessor, ok := list.(metav1.ListInterface); ok {
		accessor.SetResourceVersion(strconv.Itoa(s.store.version))
	}
	s.mu.Unlock()
	if err != nil {
		refused(w, apierrors.NewInternalError(err))
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
	refused(w, apierrors.NewBadRequest(fmt.Sprintf("event: %v", err)))
}
