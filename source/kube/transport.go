// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"net"
	"net/http"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
	"k8s.io/client-go/util/connrotation"
)

// limits say when a client considers a connection dead.
type limits struct {
	// pingAfter is how long a connection may be silent before HTTP/2 pings the server, and
	// pingTimeout how long the server has to answer. client-go's defaults, 30 s and 15 s,
	// are longer than many outages.
	pingAfter, pingTimeout time.Duration
	// dial is the timeout for connecting. The kernel repeats a SYN after 1, 3, 7 and 15 s,
	// so a longer timeout would notice later that a server is back.
	dial time.Duration
	// handshake is the timeout for the TLS handshake.
	handshake time.Duration
}

var connectionLimits = limits{pingAfter: 5 * time.Second, pingTimeout: 5 * time.Second, dial: 2 * time.Second, handshake: 10 * time.Second}

const (
	// headerMax bounds the wait for the header of a response. It matters for HTTP/1.1, which has no pings. The API
	// server itself takes no longer for a request.
	headerMax = time.Minute
	// KeepAlive is the pause between probes of an idle connection.
	KeepAlive = 30 * time.Second
)

// OwnConnections returns a configuration for a client that shares no connection with others, and a
// function that closes all of its connections, in use or not.
func OwnConnections(config *rest.Config) (own *rest.Config, closeAll func()) {
	return connectionLimits.ownConnections(config)
}

func (l limits) ownConnections(config *rest.Config) (own *rest.Config, closeAll func()) {
	own = rest.CopyConfig(config)
	if own.Transport != nil {
		return own, func() {} // the caller owns them
	}
	dial := own.Dial
	if dial == nil {
		dial = (&net.Dialer{KeepAlive: KeepAlive}).DialContext
	}
	dialer := connrotation.NewDialer(func(ctx context.Context, network, address string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, l.dial)
		defer cancel()
		return dial(ctx, network, address)
	})
	own.Dial = dialer.DialContext
	own.WrapTransport = transport.Wrappers(l.set, own.WrapTransport)
	return own, dialer.CloseAll
}

// set applies the limits to client-go's own HTTP transport. The transport belongs to one client: client-go shares a
// transport only between clients with the same dialer.
func (l limits) set(outer http.RoundTripper) http.RoundTripper {
	inner := outer
	for {
		wrapper, ok := inner.(utilnet.RoundTripperWrapper)
		if !ok {
			break
		}
		inner = wrapper.WrappedRoundTripper()
	}
	if own, ok := inner.(*http.Transport); ok {
		own.ResponseHeaderTimeout, own.TLSHandshakeTimeout = headerMax, l.handshake
		own.HTTP2 = &http.HTTP2Config{SendPingTimeout: l.pingAfter, PingTimeout: l.pingTimeout}
	}
	return outer
}
