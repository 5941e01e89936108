// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/service"
)

// server answers at one socket with one line that says who answers, and to whom. Over TCP it
// speaks HTTP.
type server struct {
	at string
	// name may change while the server answers.
	name  atomic.Pointer[string]
	close func()
}

// serve starts a server on a host that has its address.
func serve(host *netns.Namespace, socket Socket, name string) (*server, error) {
	s := &server{at: socket.At.String()}
	s.name.Store(&name)
	switch socket.Protocol {
	case service.TCP:
		listener, err := host.Listen("tcp", s.at)
		if err != nil {
			return nil, err
		}
		s.serveTCP(listener)
	case service.UDP:
		conn, err := host.ListenPacket("udp", s.at)
		if err != nil {
			return nil, err
		}
		s.serveUDP(conn)
	default:
		return nil, fmt.Errorf("is not served: test pods do not support %s", socket.Protocol)
	}
	return s, nil
}

// answer is the line that a client gets.
func (s *server) answer(client string) string {
	return fmt.Sprintf("%s of %s answers %s\n", s.at, *s.name.Load(), client)
}

func (s *server) serveTCP(listener net.Listener) {
	web := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			// A client that has left is no reason to stop.
			_, _ = io.WriteString(w, s.answer(r.RemoteAddr))
		}),
		ReadHeaderTimeout: time.Minute,
		ErrorLog:          log.New(io.Discard, "", 0), // clients that speak no HTTP
	}
	done := make(chan struct{})
	go func() {
		_ = web.Serve(listener) // it ends with Close
		close(done)
	}()
	s.close = func() { _ = web.Close(); <-done }
}

func (s *server) serveUDP(conn net.PacketConn) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		for question := make([]byte, 1); ; {
			_, from, err := conn.ReadFrom(question)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil {
				_, _ = conn.WriteTo([]byte(s.answer(from.String())), from)
			}
		}
	}()
	s.close = func() { _ = conn.Close(); <-done }
}
