package health

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

// here runs a function where the caller is.
func here(f func() error) error { return f() }

// listen opens a listener in a network namespace. With network "tcp" an
// unspecified address takes connections of both families where the kernel can;
// "tcp4" and "tcp6" take those of one. Errors say what to do about a port that
// is taken.
func listen(inside func(func() error) error, network string, at netip.AddrPort) (net.Listener, error) {
	var config net.ListenConfig
	config.SetMultipathTCP(false) // a probe gains nothing by it
	var listener net.Listener
	err := inside(func() error {
		var err error
		listener, err = config.Listen(context.Background(), network, at.String())
		return err
	})
	if err == nil {
		return listener, nil
	}
	if op, ok := errors.AsType[*net.OpError](err); ok {
		err = op.Err // without the address, which is said here
	}
	if errors.Is(err, unix.EADDRINUSE) {
		return nil, fmt.Errorf("listen on %s: %w; find who has it with: ss -ltnp 'sport = :%d'", at, err, at.Port())
	}
	return nil, fmt.Errorf("listen on %s: %w", at, err)
}

// newHTTPServer makes a server for short questions from anybody: who is slow
// loses the connection.
func newHTTPServer(h http.Handler, log *zap.Logger) *http.Server {
	const patience = 10 * time.Second
	s := &http.Server{
		Handler:           h,
		ReadHeaderTimeout: patience, ReadTimeout: patience, WriteTimeout: patience,
		IdleTimeout:    2 * time.Minute,
		MaxHeaderBytes: 16 << 10,
		// "Any method" includes OPTIONS *.
		DisableGeneralOptionsHandler: true,
	}
	if errorLog, err := zap.NewStdLogAt(log, zap.WarnLevel); err == nil { // a known level is never refused
		s.ErrorLog = errorLog
	}
	return s
}
