package web

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

const (
	// retryPause is kube-proxy's (v1.36).
	retryPause = 5 * time.Second
	// handingPause is that while another process hands the address over.
	handingPause = 100 * time.Millisecond
	// headerTimeout bounds how long a client may take to say what it wants.
	// There is no bound on answers: a profile takes as long as it was asked for.
	headerTimeout = 30 * time.Second
	// farewell is how long requests under way may take once the server stops.
	farewell = 2 * time.Second
)

// Server serves the metrics address.
type Server struct {
	config  Config
	handler http.Handler
	retry   time.Duration
	// listening is the address, nil while there is none.
	listening atomic.Pointer[net.Addr]
}

// New makes a server; Run starts it.
func New(config Config) (*Server, error) {
	if err := config.validate(); err != nil {
		return nil, err
	}
	config = config.withDefaults()
	return &Server{config: config, handler: newHandler(config), retry: retryPause}, nil
}

// Handler serves the pages without the server.
func (s *Server) Handler() http.Handler { return s.handler }

// Run serves until the context ends, and then returns nil. Requests under way are
// given 2 s to end. With HardFail, it returns the first failure.
func (s *Server) Run(ctx context.Context) error {
	for {
		err := s.serve(ctx)
		if ctx.Err() != nil {
			return nil
		}
		err = fmt.Errorf("metrics address %s: %w", s.config.Address, err)
		s.config.Listening(err)
		pause := min(s.retry, handingPause)
		if !s.config.Handing() {
			pause = s.retry
			s.config.Failed(err)
			if s.config.HardFail {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}

// serve listens and serves until the context ends or something fails.
func (s *Server) serve(ctx context.Context) error {
	listener, err := s.listen(ctx)
	if err != nil {
		return err
	}
	address := listener.Addr()
	s.listening.Store(&address)
	s.config.Listening(nil)
	defer s.listening.Store(nil)
	server := &http.Server{Handler: s.handler, ReadHeaderTimeout: headerTimeout}
	stopped := make(chan struct{})
	running := context.AfterFunc(ctx, func() {
		defer close(stopped)
		stop(server)
	})
	err = server.Serve(listener)
	if !running() {
		<-stopped
	}
	return err
}

// listen opens the socket. A socket stays in the namespace that it was opened in,
// whichever thread serves it.
func (s *Server) listen(ctx context.Context) (listener net.Listener, err error) {
	err = s.config.Inside(func() (err error) {
		var config net.ListenConfig
		listener, err = config.Listen(ctx, "tcp", s.config.Address)
		return err
	})
	return listener, err
}

// stop lets requests end, and then ends them.
func stop(server *http.Server) {
	ctx, cancel := context.WithTimeout(context.Background(), farewell)
	defer cancel()
	if err := server.Shutdown(ctx); errors.Is(err, context.DeadlineExceeded) {
		_ = server.Close() // what it could report is of no use to anybody now
	}
}
