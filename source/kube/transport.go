package kube

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/connrotation"
	"k8s.io/utils/clock"
)

// reply is the outcome of one request on the connection.
type reply struct {
	// answered is set once the head of an answer has arrived.
	answered bool
	// err is why the last try got no answer.
	err error
}

type replyKey struct{}

// observed wraps the transport of a client and reports each outcome to line and reply.
type observed struct {
	line *line
	next http.RoundTripper
}

var _ utilnet.RoundTripperWrapper = observed{}

// RoundTrip implements http.RoundTripper.
func (o observed) RoundTrip(request *http.Request) (*http.Response, error) {
	ctx, end := context.WithCancelCause(request.Context())
	open := o.line.begin(end)
	response, err := o.next.RoundTrip(request.WithContext(ctx))
	o.line.done(open)
	if err != nil {
		if silent, ok := context.Cause(ctx).(*silentError); ok {
			err = silent
		}
		end(nil)
	} else {
		response.Body = endedBody{response.Body, func() { end(nil) }}
	}
	if r, ok := request.Context().Value(replyKey{}).(*reply); ok {
		if r.answered = err == nil; !r.answered {
			r.err = fmt.Errorf("no answer from %s: %w", request.URL.Host, err)
		}
	}
	return response, err
}

// WrappedRoundTripper implements utilnet.RoundTripperWrapper.
func (o observed) WrappedRoundTripper() http.RoundTripper { return o.next }

// endedBody releases a request when its response body is closed.
type endedBody struct {
	io.ReadCloser
	end func()
}

// Close implements io.Closer.
func (b endedBody) Close() error {
	err := b.ReadCloser.Close()
	b.end()
	return err
}

// dialMax is the timeout for connecting, probeDialMax that of a probe. The kernel repeats
// a SYN after 1, 3, 7 and 15 s, so a long timeout notices late that a server is back.
const dialMax, probeDialMax = 5 * time.Second, time.Second

// KeepAlive is the pause between probes of an idle connection.
const KeepAlive = 30 * time.Second

// OwnConnections returns a configuration for a client that shares no connection with others, and a
// function that closes all of its connections, in use or not.
func OwnConnections(config *rest.Config) (own *rest.Config, closeAll func()) {
	return withOwnConnections(config, dialMax)
}

// withOwnConnections returns a configuration that shares no connection with others, and
// a function that closes all of them, in use or not.
func withOwnConnections(config *rest.Config, dialMax time.Duration) (own *rest.Config, closeAll func()) {
	own = rest.CopyConfig(config)
	if own.Transport != nil {
		return own, func() {} // the caller owns them
	}
	dial := own.Dial
	if dial == nil {
		dial = (&net.Dialer{KeepAlive: KeepAlive}).DialContext
	}
	dialer := connrotation.NewDialer(func(ctx context.Context, network, address string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, dialMax)
		defer cancel()
		return dial(ctx, network, address)
	})
	own.Dial = dialer.DialContext
	return own, dialer.CloseAll
}

// newProbe returns a function that asks whether the server is ready. Each call uses a
// new connection, since the old one may be broken. Every client may ask (ClusterRole
// system:public-info-viewer); a server that answers 403 or 404 is reachable, too.
func newProbe(config *rest.Config) (func(context.Context) (probed, error), error) {
	config, closeAll := withOwnConnections(config, probeDialMax)
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("make the HTTP client: %w", err)
	}
	client.Timeout = 0 // the context's
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, fmt.Errorf("address of the API server: %w", err)
	}
	address := base.JoinPath("readyz").String()
	return func(ctx context.Context) (probed, error) {
		defer closeAll()
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
		if err != nil {
			return probed{}, err
		}
		response, err := client.Do(request)
		if err != nil {
			return probed{}, err
		}
		_ = response.Body.Close()
		answer := probed{ready: !overloaded(response.StatusCode)}
		if seconds, err := strconv.Atoi(response.Header.Get("Retry-After")); err == nil {
			answer.after = min(time.Duration(seconds)*time.Second, retryAfterMax)
		}
		return answer, nil
	}, nil
}

// stoppableClock is the real clock, except that After also fires when ctx ends or when
// the server becomes ready. A reflector finishes its backoff without checking its
// context (client-go v0.36, Reflector.watchList) and would delay the end of the process.
type stoppableClock struct {
	clock.RealClock
	ctx  context.Context
	line *line
}

var _ clock.WithTicker = stoppableClock{}

// After implements clock.PassiveClock's waiting companion.
func (c stoppableClock) After(d time.Duration) <-chan time.Time {
	woken := make(chan time.Time, 1)
	wake := c.line.wake()
	go func() {
		c.line.sleep(c.ctx, d, wake)
		woken <- time.Now()
	}()
	return woken
}
