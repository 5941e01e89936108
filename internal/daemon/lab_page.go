// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"errors"
	"net"
	"net/http"
	"os"

	"go.uber.org/zap"

	"github.com/sluice-proxy/sluice/internal/inspect"
	"github.com/sluice-proxy/sluice/internal/ui"
	"github.com/sluice-proxy/sluice/observe/web"
)

// ListenForPage listens at a free port of this host's loopback, for the web UI of a proxy in a sandbox. Close the result.
func ListenForPage() (*os.File, error) {
	listener, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return nil, err
	}
	file, err := listener.File()
	return file, errors.Join(err, listener.Close())
}

// listen returns another descriptor of the listener of the page, which a successor uses as well.
func (l *Lab) listen() (net.Listener, error) { return net.FileListener(l.Page) }

// pageAddress returns the URL of the page; "" without one.
func (l *Lab) pageAddress() string {
	if l.Page == nil {
		return ""
	}
	listener, err := l.listen()
	if err != nil {
		return ""
	}
	defer listener.Close() // it is a copy
	return "http://" + listener.Addr().String() + ui.Path
}

// pageServer makes the server of the web UI outside the sandbox. It accepts only IP addresses and localhost as Host.
func (s *server) pageServer(l *Lab) *web.Server {
	mux := http.NewServeMux()
	mux.Handle(ui.Path, ui.Handler(inspect.Handler(s.options.Version, s.answers), s.answers))
	mux.Handle("GET /{$}", http.RedirectHandler(ui.Path, http.StatusFound))
	return web.NewServer(web.ServerConfig{
		Name: "web UI", Address: "outside", Listen: l.listen, Handler: mux, Hosts: []string{}, Log: s.log,
		Failed: func(err error) { s.log.Debug("cannot serve the web UI outside the sandbox; retrying", zap.Error(err)) },
	})
}
