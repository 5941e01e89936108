package lab

import (
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"time"

	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/service"
)

// server answers at one socket with one line that says who answers, and to whom. Over TCP it
// speaks HTTP.
type server struct {
	name  string
	close func()
}

// serve starts a server on a host that has its address.
func serve(host *netns.Namespace, socket Socket, name string) (*server, error) {
	at := socket.At.String()
	switch socket.Protocol {
	case service.TCP:
		listener, err := host.Listen("tcp", at)
		if err != nil {
			return nil, err
		}
		return serveTCP(listener, at, name), nil
	case service.UDP:
		conn, err := host.ListenPacket("udp", at)
		if err != nil {
			return nil, err
		}
		return serveUDP(conn, at, name), nil
	default:
		return nil, fmt.Errorf("is not served: test pods do not support %s", socket.Protocol)
	}
}

// answer is the line that a client gets.
func answer(at, name, client string) string {
	return fmt.Sprintf("%s of %s answers %s\n", at, name, client)
}

func serveTCP(listener net.Listener, at, name string) *server {
	s := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			// A client that has left is no reason to stop.
			_, _ = io.WriteString(w, answer(at, name, r.RemoteAddr))
		}),
		ReadHeaderTimeout: time.Minute,
		ErrorLog:          log.New(io.Discard, "", 0), // clients that speak no HTTP
	}
	done := make(chan struct{})
	go func() {
		_ = s.Serve(listener) // it ends with Close
		close(done)
	}()
	return &server{name: name, close: func() { _ = s.Close(); <-done }}
}

func serveUDP(conn net.PacketConn, at, name string) *server {
	done := make(chan struct{})
	go func() {
		defer close(done)
		for question := make([]byte, 1); ; {
			_, from, err := conn.ReadFrom(question)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil {
				_, _ = conn.WriteTo([]byte(answer(at, name, from.String())), from)
			}
		}
	}()
	return &server{name: name, close: func() { _ = conn.Close(); <-done }}
}
