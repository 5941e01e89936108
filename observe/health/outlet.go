package health

import (
	"errors"
	"net"
	"net/http"
)

// outlet is one open socket of a check, and the server behind it.
type outlet struct {
	check    *check
	listener net.Listener
	server   *http.Server
}

// serve answers until close, and then returns nil; otherwise it says what is
// wrong with the socket.
func (o *outlet) serve() error {
	if err := o.server.Serve(o.listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// close cuts all connections; the port is free when it returns.
func (o *outlet) close() {
	// The server first, so that it does not take its end for a failure. It may
	// not know the listener yet.
	_ = o.server.Close()
	_ = o.listener.Close()
}
