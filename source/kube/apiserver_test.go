package kube

import (
	"encoding/json"
	"fmt"
	"maps"
	"mime"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
)

// apiServer is a small API server: it lists and watches over HTTP, in JSON and
// protobuf, with and without watch-lists, keeps a history that can be compacted,
// and can be stopped and started again under the same address.
type apiServer struct {
	t       testing.TB
	address string

	mu       sync.Mutex
	changed  chan struct{}
	server   *http.Server
	version  int // resource version of the newest change
	oldest   int // versions below it have been compacted away
	objects  map[string]map[string]runtime.Object
	history  []change
	requests []request
	// noWatchList makes it refuse watch-lists, as servers before 1.32 do.
	noWatchList bool
	// refuse makes requests for a resource fail with a status.
	refuse map[string]*apierrors.StatusError
}

// change is one entry of the history.
type change struct {
	version  int
	resource string
	kind     watch.EventType
	object   runtime.Object
}

// request is what a client asked for.
type request struct {
	resource string
	query    url.Values
	accept   string
}

// served maps resources to their group and to an empty list.
var served = map[string]struct {
	version schema.GroupVersion
	list    runtime.Object
	single  runtime.Object
}{
	services:       {corev1.SchemeGroupVersion, &corev1.ServiceList{}, &corev1.Service{}},
	nodes:          {corev1.SchemeGroupVersion, &corev1.NodeList{}, &corev1.Node{}},
	endpointSlices: {discoveryv1.SchemeGroupVersion, &discoveryv1.EndpointSliceList{}, &discoveryv1.EndpointSlice{}},
	serviceCIDRs:   {networkingv1.SchemeGroupVersion, &networkingv1.ServiceCIDRList{}, &networkingv1.ServiceCIDR{}},
}

func newAPIServer(t testing.TB) *apiServer {
	s := &apiServer{
		t: t, address: "127.0.0.1:0", changed: make(chan struct{}), version: 100,
		objects: make(map[string]map[string]runtime.Object), refuse: make(map[string]*apierrors.StatusError),
	}
	for resource := range served {
		s.objects[resource] = make(map[string]runtime.Object)
	}
	s.start()
	t.Cleanup(s.stop)
	return s
}

// config reaches the server the way RESTConfig would set it up.
func (s *apiServer) config() *rest.Config {
	return &rest.Config{
		Host: "http://" + s.address, QPS: -1,
		ContentConfig: rest.ContentConfig{ContentType: Protobuf, AcceptContentTypes: Protobuf + ",application/json"},
	}
}

func (s *apiServer) start() {
	listener, err := net.Listen("tcp", s.address)
	if err != nil {
		s.t.Fatal(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.address = listener.Addr().String()
	server := &http.Server{Handler: http.HandlerFunc(s.serve)}
	s.server = server
	go server.Serve(listener)
}

// stop closes the port and breaks all connections.
func (s *apiServer) stop() {
	s.mu.Lock()
	server := s.server
	s.mu.Unlock()
	server.Close()
}

// set creates or updates an object.
func (s *apiServer) set(resource string, object runtime.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	kind := watch.Modified
	if s.objects[resource][nameOf(object)] == nil {
		kind = watch.Added
	}
	s.record(kind, resource, object)
	s.objects[resource][nameOf(object)] = object
}

// remove deletes an object.
func (s *apiServer) remove(resource, namespace, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := namespace + "/" + name
	object := s.objects[resource][id].DeepCopyObject()
	delete(s.objects[resource], id)
	s.record(watch.Deleted, resource, object)
}

func (s *apiServer) record(kind watch.EventType, resource string, object runtime.Object) {
	s.version++
	accessor, err := meta.Accessor(object)
	if err != nil {
		s.t.Error(err)
		return
	}
	accessor.SetResourceVersion(strconv.Itoa(s.version))
	s.history = append(s.history, change{s.version, resource, kind, object})
	s.wake()
}

// compact forgets the history, so that watches from an old version expire.
func (s *apiServer) compact() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	s.oldest = s.version
	s.history = nil
	s.wake()
}

// rewind makes the server forget versions, as a restored backup does.
func (s *apiServer) rewind() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version, s.oldest, s.history = 10, 0, nil
}

func (s *apiServer) wake() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// setRefusal makes requests for a resource fail, or succeed again with nil.
func (s *apiServer) setRefusal(resource string, err *apierrors.StatusError) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse[resource] = err
}

// asked lists the requests for a resource so far.
func (s *apiServer) asked(resource string) []request {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []request
	for _, request := range s.requests {
		if request.resource == resource {
			found = append(found, request)
		}
	}
	return found
}

func (s *apiServer) serve(w http.ResponseWriter, r *http.Request) {
	resource := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
	query := r.URL.Query()
	s.mu.Lock()
	s.requests = append(s.requests, request{resource, query, r.Header.Get("Accept")})
	refusal := s.refuse[resource]
	if refusal == nil {
		refusal = s.judge(resource, query)
	}
	s.mu.Unlock()
	switch {
	case refusal != nil:
		status := refusal.Status()
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(int(status.Code))
		status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
		json.NewEncoder(w).Encode(status)
	case query.Get("watch") != "":
		s.watch(w, r, resource)
	default:
		s.list(w, r, resource)
	}
}

// judge refuses what a real server would. The lock is held.
func (s *apiServer) judge(resource string, query url.Values) *apierrors.StatusError {
	version, _ := strconv.Atoi(query.Get("resourceVersion"))
	streamed := query.Get("sendInitialEvents") != ""
	switch {
	case streamed && s.noWatchList:
		return apierrors.NewInvalid(schema.GroupKind{Kind: "ListOptions"}, "", nil)
	case version > s.version:
		err := apierrors.NewTimeoutError("Too large resource version", 1)
		err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge}}
		return err
	case query.Get("watch") != "" && !streamed && version < s.oldest:
		return apierrors.NewResourceExpired("too old resource version")
	}
	return nil
}

func (s *apiServer) list(w http.ResponseWriter, r *http.Request, resource string) {
	s.mu.Lock()
	list := served[resource].list.DeepCopyObject()
	err := meta.SetList(list, s.sorted(resource))
	accessor, _ := meta.ListAccessor(list)
	accessor.SetResourceVersion(strconv.Itoa(s.version))
	s.mu.Unlock()
	if err != nil {
		s.t.Error(err)
		return
	}
	info := negotiate(r)
	w.Header().Set("Content-Type", info.MediaType)
	if err := codecs.EncoderForVersion(info.Serializer, served[resource].version).Encode(list, w); err != nil {
		s.t.Logf("list %s: %v", resource, err) // the client may have gone
	}
}

func (s *apiServer) sorted(resource string) []runtime.Object {
	var all []runtime.Object
	for _, id := range slices.Sorted(maps.Keys(s.objects[resource])) {
		all = append(all, s.objects[resource][id].DeepCopyObject())
	}
	return all
}

func (s *apiServer) watch(w http.ResponseWriter, r *http.Request, resource string) {
	info := negotiate(r)
	version := served[resource].version
	w.Header().Set("Content-Type", info.MediaType+";stream=watch")
	w.WriteHeader(http.StatusOK)
	out := streaming.NewEncoder(info.StreamSerializer.Framer.NewFrameWriter(w),
		codecs.EncoderForVersion(info.StreamSerializer.Serializer, version))
	inner := codecs.EncoderForVersion(info.Serializer, version)
	send := func(kind watch.EventType, object runtime.Object) bool {
		raw, err := runtime.Encode(inner, object)
		if err != nil {
			s.t.Error(err)
			return false
		}
		event := &metav1.WatchEvent{Type: string(kind), Object: runtime.RawExtension{Raw: raw}}
		return out.Encode(event) == nil
	}
	flush := http.NewResponseController(w)

	at, _ := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	if r.URL.Query().Get("sendInitialEvents") == "true" {
		var ok bool
		if at, ok = s.sendInitial(resource, send); !ok {
			return
		}
	}
	for {
		pending, changed, oldest := s.since(resource, at)
		if at < oldest {
			gone := apierrors.NewResourceExpired("too old resource version").Status()
			send(watch.Error, &gone)
			return
		}
		for _, change := range pending {
			if !send(change.kind, change.object) {
				return
			}
			at = change.version
		}
		if flush.Flush() != nil {
			return
		}
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
	}
}

// sendInitial streams the objects and the bookmark that ends them.
func (s *apiServer) sendInitial(resource string, send func(watch.EventType, runtime.Object) bool) (int, bool) {
	s.mu.Lock()
	at, all := s.version, s.sorted(resource)
	s.mu.Unlock()
	for _, object := range all {
		if !send(watch.Added, object) {
			return 0, false
		}
	}
	bookmark := served[resource].single.DeepCopyObject()
	accessor, _ := meta.Accessor(bookmark)
	accessor.SetResourceVersion(strconv.Itoa(at))
	accessor.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	return at, send(watch.Bookmark, bookmark)
}

// since gives the changes of a resource after a version, and a channel that is
// closed by the next change.
func (s *apiServer) since(resource string, version int) ([]change, <-chan struct{}, int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var pending []change
	for _, entry := range s.history {
		if entry.resource == resource && entry.version > version {
			pending = append(pending, change{entry.version, resource, entry.kind, entry.object.DeepCopyObject()})
		}
	}
	return pending, s.changed, s.oldest
}

func negotiate(r *http.Request) runtime.SerializerInfo {
	first, _, _ := strings.Cut(r.Header.Get("Accept"), ",")
	media, _, err := mime.ParseMediaType(first)
	if err != nil {
		media = "application/json"
	}
	info, ok := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), media)
	if !ok {
		panic(fmt.Sprintf("client accepts %q only", r.Header.Get("Accept")))
	}
	return info
}

func nameOf(object runtime.Object) string {
	accessor, err := meta.Accessor(object)
	if err != nil {
		panic(err)
	}
	return accessor.GetNamespace() + "/" + accessor.GetName()
}
