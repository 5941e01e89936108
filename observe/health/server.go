package health

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"go.uber.org/zap"
)

// ServerConfig is what a Server is made of.
type ServerConfig struct {
	// Address is where to listen (healthzBindAddress). The unspecified address
	// of either family takes connections of both, where the kernel can.
	Address netip.AddrPort
	// HardFail makes a failure to listen the end of Run, instead of something
	// to try again (bindAddressHardFail).
	HardFail bool
	Monitor  *Monitor
	// Answered is told the path ("/healthz", "/livez") and the status of every
	// answer, by several goroutines. Nil tells nobody.
	Answered func(path string, code int)
	// Failed is told, with HardFail, why Run is about to return an error; for
	// the event FailedToStartProxierHealthcheck. Nil tells nobody.
	Failed func(error)
	// Handing tells that another process is about to give the address up, or to wait
	// for: as long as it does, a failure to listen is nobody's mistake, not even with
	// HardFail, and it is tried again ten times a second. Nil means never.
	Handing func() bool
	// Listening is told nil whenever the server listens, and the error whenever it
	// cannot, or no longer does; it must not block. Nil tells nobody.
	Listening func(error)
	// Inside runs a function on a thread in the network namespace to listen in.
	// Default: the process's own namespace.
	Inside func(func() error) error
	// Log is nil for no log.
	Log *zap.Logger
}

func (c ServerConfig) withDefaults() ServerConfig {
	if c.Answered == nil {
		c.Answered = func(string, int) {}
	}
	if c.Failed == nil {
		c.Failed = func(error) {}
	}
	if c.Handing == nil {
		c.Handing = func() bool { return false }
	}
	if c.Listening == nil {
		c.Listening = func(error) {}
	}
	if c.Inside == nil {
		c.Inside = here
	}
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
	return c
}

// Server answers /healthz and /livez.
type Server struct {
	config ServerConfig
}

// NewServer makes a server; Run starts it.
func NewServer(config ServerConfig) (*Server, error) {
	if config.Monitor == nil || !config.Address.IsValid() || config.Address.Port() == 0 {
		return nil, fmt.Errorf("health server on %v: a monitor, an address and a port are needed", config.Address)
	}
	return &Server{config: config.withDefaults()}, nil
}

// The pause after a failure to listen: kube-proxy's (v1.36), and that while another
// process hands the address over.
const (
	listenAgainAfter = 5 * time.Second
	handingPause     = 100 * time.Millisecond
)

// Run serves until the context ends, and then returns nil; answers under way are
// given a moment. With HardFail it returns an error when it cannot listen.
func (s *Server) Run(ctx context.Context) error {
	for {
		err := s.serve(ctx)
		if ctx.Err() != nil {
			return nil
		}
		s.config.Listening(err)
		pause := listenAgainAfter
		switch {
		case s.config.Handing():
			pause = handingPause
		case s.config.HardFail:
			s.config.Failed(err)
			return err
		default:
			s.config.Log.Error("health server does not run; trying again", zap.Error(err), zap.Duration("after", pause))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}

// serve listens and answers until the context ends or the listener fails.
func (s *Server) serve(ctx context.Context) error {
	listener, err := listen(s.config.Inside, "tcp", s.config.Address)
	if err != nil {
		return fmt.Errorf("health server: %w", err)
	}
	server := newHTTPServer(newHandler(s.config.Monitor, s.config.Answered), s.config.Log)
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(stopped)
		moment, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		if server.Shutdown(moment) != nil {
			_ = server.Close() // whoever is still there is slow
		}
	})
	s.config.Log.Info("health server listens", zap.Stringer("address", listener.Addr()))
	s.config.Listening(nil)
	err = server.Serve(listener)
	if !stop() {
		<-stopped
		return nil
	}
	return fmt.Errorf("health server on %s: %w", s.config.Address, errors.Join(err, server.Close()))
}
