package apitest

import (
	"errors"
	"net"
	"net/http"
	"sync"

	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
)

// Listen opens the port of a server: net.Listen, or the same inside of a network
// namespace.
type Listen func(network, address string) (net.Listener, error)

// Server is one API server. All methods may be called from anywhere.
type Server struct {
	listen Listen

	mu      sync.Mutex
	address string
	changed chan struct{}
	server  *http.Server
	store   *store
	// requests are those that came so far, and events what they brought.
	requests []Request
	events   []*eventsv1.Event
	// streams is false when streamed lists are refused, as servers before
	// Kubernetes 1.32 do.
	streams bool
	// refuse makes requests for a resource fail with a status.
	refuse map[string]*apierrors.StatusError
}

// New starts a server without objects on a free port of the loopback interface;
// Stop ends it.
func New(listen Listen) (*Server, error) {
	s := &Server{
		listen: listen, address: "127.0.0.1:0", changed: make(chan struct{}), store: newStore(), streams: true,
		refuse: make(map[string]*apierrors.StatusError),
	}
	return s, s.Start()
}

// Address returns host and port.
func (s *Server) Address() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.address
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

// Stop closes the port and breaks all connections. What is stored stays.
func (s *Server) Stop() error {
	s.mu.Lock()
	server := s.server
	s.mu.Unlock()
	return server.Close()
}

// Set creates or updates an object of a resource. The server owns the object from
// then on.
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

// wake tells those who watch. The lock is held.
func (s *Server) wake() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// Refuse makes requests for a resource fail, or succeed again with nil.
func (s *Server) Refuse(resource string, err *apierrors.StatusError) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse[resource] = err
}

// StreamLists reports whether lists may be asked for as part of a watch.
func (s *Server) StreamLists(may bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.streams = may
}

// Asked lists the requests for a resource so far.
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

// Events lists the events that were created so far; who reads must not change
// them.
func (s *Server) Events() []*eventsv1.Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]*eventsv1.Event(nil), s.events...)
}
