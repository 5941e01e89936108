// SPDX-License-Identifier: Apache-2.0

// Package web serves HTTP on a node. A [Server] keeps one handler at one address: the daemon runs
// one for health and one for metrics. [Pages] is the handler of the metrics address: metrics, the
// proxy's mode, its configuration, flags and state, and debugging, at the paths and in the formats
// of kube-proxy v1.37, without authentication. The package knows nothing of the proxy: everything
// that a page shows comes from a handler or a function, which it calls for each request.
package web

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/internal/host/holder"
	"github.com/sluice-proxy/sluice/internal/sleep"
)

// ServerConfig configures a Server. Handler, Address and Failed are required.
type ServerConfig struct {
	// Name begins every error and log line, for example "health server".
	Name string
	// Address is the host and port to listen on. The unspecified address of either family accepts
	// connections of both, where the kernel can.
	Address string
	Handler http.Handler
	// Listen returns a listener instead of one at Address, which is only a name then.
	Listen func() (net.Listener, error)
	// TLS makes the server speak HTTPS only; nil means HTTP.
	TLS *tls.Config
	// ForProbes sets short limits: 2 s for the header of a request, 10 s for its answer, 1 s to
	// finish when the server stops, and one request for each connection. Otherwise an answer may take 30 s, and a
	// profile its requested duration in addition.
	ForProbes bool
	// Hosts are the names of this node. With them, the server answers only requests that name one of
	// them, "localhost" or an address (RFC 9110, section 7.2). Nil answers for every name.
	Hosts []string
	// HardFail makes Run return the first failure instead of retrying every RetryPause.
	HardFail bool
	// Failed receives each failure to listen or to serve. It must not block.
	Failed func(error)
	// Handing reports whether another process is about to release the address. Meanwhile a failure
	// is not reported to Failed, does not end Run even with HardFail, and is retried after 100 ms, and after up to 1 s if it lasts.
	Handing func() bool
	// Listening receives nil when the server starts to listen, and the error when it cannot, or no
	// longer does. It must not block.
	Listening func(error)
	// Log receives the address that the server listens on, and errors of single connections. Nil
	// leaves the latter to the standard logger.
	Log *zap.Logger
}

func (c ServerConfig) withDefaults() ServerConfig {
	if c.Handing == nil {
		c.Handing = func() bool { return false }
	}
	if c.Listening == nil {
		c.Listening = func(error) {}
	}
	return c
}

const (
	// RetryPause is the pause after a failure to listen, as in kube-proxy v1.37.
	RetryPause = 5 * time.Second
	// handingPause is the pause while another process hands the address over. A process on standby may wait for ever,
	// so it grows with a tenth of the wait to handingMax.
	handingPause = 100 * time.Millisecond
	handingMax   = time.Second
	// idleMax is how long a connection stays open between two requests.
	idleMax = 2 * time.Minute
	// answerMax bounds the header of a request and its answer.
	answerMax = 30 * time.Second
)

// Server serves one handler at one address.
type Server struct {
	config ServerConfig
	retry  time.Duration
	// answer bounds the time from the end of a request's header to the end of its answer.
	answer time.Duration
	// farewell bounds the wait for answers in progress when the server stops.
	farewell time.Duration
	// listening is the address, nil while there is none.
	listening atomic.Pointer[net.Addr]
}

// NewServer makes a server; Run starts it.
func NewServer(config ServerConfig) *Server {
	s := &Server{config: config.withDefaults(), retry: RetryPause, answer: answerMax, farewell: 2 * time.Second}
	if config.ForProbes {
		s.farewell = time.Second
	}
	return s
}

// Run serves until the context ends, lets requests in progress finish, and returns nil. With
// HardFail it returns the first failure.
func (s *Server) Run(ctx context.Context) error {
	for began := time.Now(); ; {
		err := s.serve(ctx)
		if ctx.Err() != nil {
			return nil
		}
		err = &about{s.config.Name, err}
		s.config.Listening(err)
		pause := min(s.retry, handingMax, max(handingPause, time.Since(began)/10))
		if !s.config.Handing() {
			pause, began = s.retry, time.Now()
			s.config.Failed(err)
			if s.config.HardFail {
				return err
			}
		}
		if !sleep.For(ctx, pause) {
			return nil
		}
	}
}

// serve listens and serves until the context ends or something fails.
func (s *Server) serve(ctx context.Context) error {
	listener, err := s.listen(ctx)
	if err != nil {
		return err
	}
	handler := s.config.Handler
	if s.config.Hosts != nil {
		handler = forHosts(s.config.Hosts, handler)
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: s.answer, WriteTimeout: s.answer, IdleTimeout: idleMax}
	if s.config.ForProbes {
		server = ProbeServer(handler)
	}
	most := connectionsMax()
	listener = newLimit(most, most).Bound(server, listener)
	if s.config.Log != nil {
		LogErrors(server, s.config.Log)
		if s.config.TLS != nil { // any client can fail a handshake
			server.ErrorLog, _ = zap.NewStdLogAt(s.config.Log, zap.DebugLevel)
		}
		s.config.Log.Info(s.config.Name+" listens", zap.Stringer("address", listener.Addr()))
	}
	address := listener.Addr()
	s.listening.Store(&address)
	defer s.listening.Store(nil)
	s.config.Listening(nil)
	stopped := make(chan struct{})
	running := context.AfterFunc(ctx, func() {
		defer close(stopped)
		stop(server, s.farewell)
	})
	if server.TLSConfig = s.config.TLS; server.TLSConfig != nil {
		server.Protocols = new(http.Protocols)
		server.Protocols.SetHTTP1(true) // one request of a connection at a time, as the limit counts
		err = server.ServeTLS(listener, "", "")
	} else {
		err = server.Serve(listener)
	}
	if !running() {
		<-stopped
		return nil
	}
	return errors.Join(err, server.Close())
}

func (s *Server) listen(ctx context.Context) (net.Listener, error) {
	if s.config.Listen != nil {
		return s.config.Listen()
	}
	return Listen(ctx, "tcp", s.config.Address)
}

// stop lets requests in progress finish, and cuts those that take longer than a farewell.
func stop(server *http.Server, farewell time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), farewell)
	defer cancel()
	if server.Shutdown(ctx) != nil {
		_ = server.Close() // the process has no use for the error any more
	}
}

// Listen opens a listener. With network "tcp" an unspecified address accepts connections of both families where the
// kernel can; "tcp4" and "tcp6" accept those of one. If the port is taken, the error is a *TakenError.
func Listen(ctx context.Context, network, address string) (net.Listener, error) {
	var config net.ListenConfig
	config.SetMultipathTCP(false) // neither probes nor scrapes gain anything by it
	listener, err := config.Listen(ctx, network, address)
	if err == nil {
		return listener, nil
	}
	if errors.Is(err, unix.EADDRINUSE) {
		err = &TakenError{network, address}
	} else if op, ok := errors.AsType[*net.OpError](err); ok {
		err = op.Err // without the address, which this error names itself
	}
	return nil, &about{"listen on " + address, err}
}

// about is an error with what it is about. Unlike fmt.Errorf, it makes its text only when Error is called.
type about struct {
	what string
	err  error
}

// Error returns both.
func (e *about) Error() string { return e.what + ": " + e.err.Error() }

// Unwrap returns the error.
func (e *about) Unwrap() error { return e.err }

// TakenError says that another socket prevents listening at an address. It matches EADDRINUSE.
type TakenError struct{ network, address string }

// Holder describes the process that has the socket now; it is empty if that is not known. It walks the processes of the node,
// and so does Error.
func (e *TakenError) Holder() string {
	at, err := netip.ParseAddrPort(e.address)
	if err != nil {
		return ""
	}
	who, found := holder.Of(e.network, at)
	if !found {
		return ""
	}
	return who.String()
}

// Error names the holder, or says how to find it.
func (e *TakenError) Error() string {
	_, port, _ := net.SplitHostPort(e.address) // it is taken, so it is valid
	who := e.Holder()
	if who == "" {
		return fmt.Sprintf("%v; find the process with: ss -ltnp 'sport = :%s'", unix.EADDRINUSE, port)
	}
	return fmt.Sprintf("%v: %s occupies port %s; stop it, or choose another address", unix.EADDRINUSE, who, port)
}

// Unwrap returns the system's error.
func (e *TakenError) Unwrap() error { return unix.EADDRINUSE }

// ProbeServer returns a server for short requests from anyone. A slow client loses its connection,
// and so does every client after its answer: probes are seconds apart, and idle connections would
// only take places.
func ProbeServer(handler http.Handler) *http.Server {
	const patience = 10 * time.Second
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 2 * time.Second, ReadTimeout: patience, WriteTimeout: patience,
		MaxHeaderBytes: 16 << 10,
		// A probe may use any method, OPTIONS * included.
		DisableGeneralOptionsHandler: true,
	}
	server.SetKeepAlivesEnabled(false)
	return server
}

// LogErrors sends a server's errors about single connections to a log, as warnings.
func LogErrors(server *http.Server, log *zap.Logger) {
	if to, err := zap.NewStdLogAt(log, zap.WarnLevel); err == nil { // it rejects unknown levels only
		server.ErrorLog = to
	}
}

// Answer writes a complete answer. It ignores write errors: they mean that the client has gone.
func Answer(w http.ResponseWriter, code int, mediaType string, body []byte) {
	w.Header().Set("Content-Type", mediaType)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	_, _ = w.Write(body)
}
