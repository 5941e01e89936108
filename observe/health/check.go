// SPDX-License-Identifier: Apache-2.0

package health

import (
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/sluice-proxy/sluice/observe/web"
	"github.com/sluice-proxy/sluice/service"
)

// checkKey names one Service in one family.
type checkKey struct {
	family service.Family
	key    service.Key
}

// wish is what one check should offer.
type wish struct {
	// port is the health-check node port, 0 for none.
	port uint16
	// ready is the number of ready endpoints on this node.
	ready int
}

// check is the health check of one Service in one family: its wish, and the outlets that are open
// for it. The goroutine of Ports owns it; handlers read ready.
type check struct {
	checkKey
	wish  wish
	at    []netip.Addr
	ready atomic.Int64
	open  map[netip.Addr]*outlet
	// pause is the time between the last try that counted and retryAt, the next scheduled one. It
	// is zero while nothing has failed.
	pause   time.Duration
	retryAt time.Time
}

// Bounds of the pause between tries, which doubles each time.
const (
	retryMin = time.Second
	retryMax = time.Minute
)

// want takes a new wish and the addresses to listen on, closes what is no longer wanted, and
// reports whether it has closed anything. Outlets that are still right stay open.
func (c *check) want(w wish, at []netip.Addr) (closed bool) {
	if w.port != c.wish.port {
		closed = c.closeAll()
		c.pause, c.retryAt = 0, time.Time{}
	}
	c.wish, c.at = w, at
	c.ready.Store(int64(w.ready))
	for addr := range c.open {
		if w.port == 0 || !slices.Contains(at, addr) {
			c.close(addr)
			closed = true
		}
	}
	return closed
}

// complete reports whether everything wished for is open.
func (c *check) complete() bool {
	missing := func(addr netip.Addr) bool { return c.open[addr] == nil }
	return c.wish.port == 0 || !slices.ContainsFunc(c.at, missing)
}

// tryOpen opens all missing outlets. If one fails, it closes those that it opened.
func (c *check) tryOpen(open func(*check, netip.AddrPort) (*outlet, error)) error {
	var opened []netip.Addr
	for _, addr := range c.at {
		if c.open[addr] != nil {
			continue
		}
		o, err := open(c, netip.AddrPortFrom(addr, c.wish.port))
		if err != nil {
			for _, addr := range opened {
				c.close(addr)
			}
			return err
		}
		c.open[addr] = o
		opened = append(opened, addr)
	}
	c.pause, c.retryAt = 0, time.Time{}
	return nil
}

// failed schedules the next try, and reports whether this one counts. A try that a new wish caused before retryAt does
// not.
func (c *check) failed(now time.Time) bool {
	if now.Before(c.retryAt) {
		return false
	}
	c.pause = min(max(2*c.pause, retryMin), retryMax)
	c.retryAt = now.Add(c.pause)
	return true
}

func (c *check) close(addr netip.Addr) {
	c.open[addr].close()
	delete(c.open, addr)
}

func (c *check) closeAll() (closed bool) {
	closed = len(c.open) > 0
	for addr := range c.open {
		c.close(addr)
	}
	return closed
}

// checkAnswer is the body of an answer, in kube-proxy's layout.
type checkAnswer struct {
	Service struct {
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
	} `json:"service"`
	LocalEndpoints      int64 `json:"localEndpoints"`
	ServiceProxyHealthy bool  `json:"serviceProxyHealthy"`
}

// handler answers any path and method: 200 if the Service has ready endpoints here and the proxy is
// healthy, otherwise 503.
func (c *check) handler(healthy func() bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		body := checkAnswer{LocalEndpoints: c.ready.Load(), ServiceProxyHealthy: healthy()}
		body.Service.Namespace, body.Service.Name = c.key.Namespace, c.key.Name
		text, err := json.MarshalIndent(body, "", "\t")
		if err != nil {
			text = []byte(err.Error()) // strings and numbers always encode
		}
		code := http.StatusOK
		if body.LocalEndpoints == 0 || !body.ServiceProxyHealthy {
			code = http.StatusServiceUnavailable
		}
		w.Header().Set("X-Load-Balancing-Endpoint-Weight", strconv.FormatInt(body.LocalEndpoints, 10))
		web.Answer(w, code, web.JSON, text)
	})
}

// outlet is one open socket of a check, and the server behind it.
type outlet struct {
	check    *check
	listener net.Listener
	server   *http.Server
}

// serve answers until close, and then returns nil. Otherwise it returns what is wrong with the
// socket.
func (o *outlet) serve() error {
	if err := o.server.Serve(o.listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// close cuts all connections; the port is free when it returns.
func (o *outlet) close() {
	// The server is closed first, so that it does not take the end of the listener for a failure. It may not know the
	// listener yet.
	_ = o.server.Close()
	_ = o.listener.Close()
}
