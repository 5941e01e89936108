// SPDX-License-Identifier: Apache-2.0

// Package apitest is a small API server for tests: it lists and watches the resources that a proxy
// reads over HTTP, in JSON and protobuf, with and without streamed lists, supports selectors,
// accepts events, reviews callers, keeps a history that can be compacted, and can be stopped and started again at
// the same address. The tests of the API source, the scenarios, the simulation and the campaign use
// it.
//
// Unlike a real one, it validates nothing, so that tests can feed a proxy objects that a present
// server rejects. For everything else, test/e2e has the real server.
package apitest

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"sync"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// Listen opens the port of a server: net.Listen, or the same inside a network namespace.
type Listen func(network, address string) (net.Listener, error)

// Server is one API server. All methods may be called from anywhere.
type Server struct {
	listen Listen

	mu      sync.Mutex
	address string
	changed chan struct{}
	server  *http.Server
	store   *store
	// requests are those received so far, events the created ones.
	requests []Request
	events   []*eventsv1.Event
	// tokens are users by their token, rights what each user may do.
	tokens map[string]granted
	// issued is the token that a TokenRequest returns, and life is how long it is valid.
	issued string
	life   time.Duration
	rights map[string]func(*authorizationv1.NonResourceAttributes) bool
	// lagging is the state of the watch cache, if that is behind the store; otherwise nil.
	lagging *store
	// quorumless is set while etcd cannot say which state is the newest.
	quorumless bool
	// streams is false when streamed lists are rejected, as servers before Kubernetes 1.32 do.
	streams bool
	// reject makes requests for a resource fail with a status.
	reject map[string]*apierrors.StatusError
	// proxied answers for pods; nil if nothing does.
	proxied func(namespace, pod string) http.Handler
}

// New starts a server without objects on a free port of the loopback interface; Stop ends it.
func New(listen Listen) (*Server, error) {
	s := &Server{
		listen: listen, address: "127.0.0.1:0", changed: make(chan struct{}), store: newStore(), streams: true,
		reject: make(map[string]*apierrors.StatusError), tokens: make(map[string]granted),
		rights: make(map[string]func(*authorizationv1.NonResourceAttributes) bool),
	}
	return s, s.Start()
}

// Address returns host and port.
func (s *Server) Address() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.address
}

// kubeconfig reaches a server that authenticates no client.
const kubeconfig = `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "http://%s"}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
users: [{name: u, user: {}}]
current-context: c
`

// WriteKubeconfig writes a file with which a client finds a server at this address.
func WriteKubeconfig(file, address string) error {
	return os.WriteFile(file, fmt.Appendf(nil, kubeconfig, address), 0o600)
}

// Start opens the port again, after Stop.
func (s *Server) Start() error {
	listener, err := s.listen("tcp", s.Address())
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.address = listener.Addr().String()
	server := &http.Server{Handler: http.HandlerFunc(s.serve)}
	s.server = server
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			panic(err) // a listener of our own that cannot accept
		}
	}()
	return nil
}

// Stop closes the port and all connections. The objects stay.
func (s *Server) Stop() error {
	s.mu.Lock()
	server := s.server
	s.mu.Unlock()
	return server.Close()
}

// Set creates or updates an object of a resource. The server owns the object from then on.
func (s *Server) Set(resource string, object runtime.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.store.set(resource, object)
	s.wake()
}

// Remove deletes an object, if it is there; the namespace of a Node is "".
func (s *Server) Remove(resource, namespace, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.store.remove(resource, namespace+"/"+name)
	s.wake()
}

// Lag makes lists of any version (resourceVersion=0) return what there is now from then on, as the watch
// cache of a server that is behind etcd does.
func (s *Server) Lag() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lagging = s.store.clone()
}

// LoseQuorum makes lists of the newest state fail: etcd has no quorum. The watch cache still answers.
func (s *Server) LoseQuorum() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.quorumless = true
}

// Compact forgets the history, so that watches from an old version expire.
func (s *Server) Compact() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.store.compact()
	s.wake()
}

// Rewind makes the server forget versions, as a restored backup does.
func (s *Server) Rewind() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.store.rewind()
}

// wake wakes the watchers. The lock is held.
func (s *Server) wake() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// Reject makes requests for a resource fail, or succeed again with nil.
func (s *Server) Reject(resource string, err *apierrors.StatusError) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reject[resource] = err
}

// Proxy makes the server pass requests for pods on (pods/proxy): to the handler of a pod, which is named with its port, or to
// nothing if that is nil.
func (s *Server) Proxy(to func(namespace, pod string) http.Handler) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.proxied = to
}

// StreamLists allows lists as part of a watch, or rejects them.
func (s *Server) StreamLists(may bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.streams = may
}

// Asked returns the requests for a resource so far.
func (s *Server) Asked(resource string) []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []Request
	for _, request := range s.requests {
		if request.Resource == resource {
			found = append(found, request)
		}
	}
	return found
}

// Events returns the events created so far. The caller must not change them.
func (s *Server) Events() []*eventsv1.Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]*eventsv1.Event(nil), s.events...)
}

// Local is a server without a network: it takes objects as [Server] does, and calls the followers
// of a resource immediately, in the goroutine of the change. It is for simulations, in which nothing
// may wait for a socket.
type Local struct {
	mu        sync.Mutex
	store     *store
	followers map[string][]follower
}

type follower struct {
	sel  selection
	tell func(watch.EventType, runtime.Object)
}

// NewLocal makes a server without objects.
func NewLocal() *Local { return &Local{store: newStore(), followers: make(map[string][]follower)} }

// Follow calls a function for every object that a label selector and a field selector select, first
// for the present ones, then for changes. The function owns the objects.
func (l *Local) Follow(resource, labels, fields string, tell func(watch.EventType, runtime.Object)) error {
	sel, err := selectionOf(resource, url.Values{"labelSelector": {labels}, "fieldSelector": {fields}})
	if err != nil {
		return fmt.Errorf("follow %s: %w", resource, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, object := range l.store.selected(resource, sel) {
		tell(watch.Added, object)
	}
	l.followers[resource] = append(l.followers[resource], follower{sel, tell})
	return nil
}

// Set creates or updates an object of a resource. The server owns the object from then on.
func (l *Local) Set(resource string, object runtime.Object) {
	l.change(resource, func() { l.store.set(resource, object) })
}

// Remove deletes an object, if it is there.
func (l *Local) Remove(resource, namespace, name string) {
	l.change(resource, func() { l.store.remove(resource, namespace+"/"+name) })
}

// change makes a change and calls the followers. No follower needs the history before it.
func (l *Local) change(resource string, do func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.store.version
	do()
	for _, f := range l.followers[resource] {
		for _, n := range l.store.since(resource, before, f.sel) {
			f.tell(n.kind, n.object)
		}
	}
	l.store.history = nil
}
