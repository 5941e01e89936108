package health

import (
	"encoding/json"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/sluice-proxy/sluice/service"
)

// place names one Service in one family.
type place struct {
	family service.Family
	key    service.Key
}

// wish is what a place should offer.
type wish struct {
	// port is the health-check node port, 0 for none.
	port uint16
	// ready is the number of ready endpoints on this node.
	ready int
}

// check is the health check of one place: what is wished for, and the outlets
// that are open for it. The goroutine of Ports owns it; handlers read ready.
type check struct {
	place
	wish  wish
	at    []netip.Addr
	ready atomic.Int64
	open  map[netip.Addr]*outlet
	// pause is the time from the last try that counted to retryAt, the next one
	// by itself; zero while nothing has failed.
	pause   time.Duration
	retryAt time.Time
}

// Bounds of the pause between tries, which doubles each time.
const (
	retryMin = time.Second
	retryMax = time.Minute
)

// want takes a new wish and the addresses to listen on, closes what is not
// wanted any more, and tells whether it has closed anything. Outlets that are
// still right are left alone.
func (c *check) want(w wish, at []netip.Addr) (closed bool) {
	if w.port != c.wish.port {
		closed = c.closeAll()
		c.pause, c.retryAt = 0, time.Time{}
	}
	c.wish, c.at = w, at
	c.ready.Store(int64(w.ready))
	for addr, o := range c.open {
		if w.port == 0 || !slices.Contains(at, addr) {
			o.close()
			delete(c.open, addr)
			closed = true
		}
	}
	return closed
}

// complete tells whether everything wished for is open.
func (c *check) complete() bool {
	missing := func(addr netip.Addr) bool { return c.open[addr] == nil }
	return c.wish.port == 0 || !slices.ContainsFunc(c.at, missing)
}

// tryOpen opens what is missing, or nothing of it.
func (c *check) tryOpen(open func(*check, netip.AddrPort) (*outlet, error)) error {
	var opened []netip.Addr
	for _, addr := range c.at {
		if c.open[addr] != nil {
			continue
		}
		o, err := open(c, netip.AddrPortFrom(addr, c.wish.port))
		if err != nil {
			for _, addr := range opened {
				c.open[addr].close()
				delete(c.open, addr)
			}
			return err
		}
		c.open[addr] = o
		opened = append(opened, addr)
	}
	c.pause, c.retryAt = 0, time.Time{}
	return nil
}

// failed schedules the next try, and tells whether this one counts: those that a
// new wish has brought about before their time do not.
func (c *check) failed(now time.Time) bool {
	if now.Before(c.retryAt) {
		return false
	}
	c.pause = min(max(2*c.pause, retryMin), retryMax)
	c.retryAt = now.Add(c.pause)
	return true
}

func (c *check) closeAll() (closed bool) {
	closed = len(c.open) > 0
	for addr, o := range c.open {
		o.close()
		delete(c.open, addr)
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

// handler answers any path and method: 200 when the Service has ready endpoints
// here and the proxy is healthy.
func (c *check) handler(healthy func() bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		body := checkAnswer{LocalEndpoints: c.ready.Load(), ServiceProxyHealthy: healthy()}
		body.Service.Namespace, body.Service.Name = c.key.Namespace, c.key.Name
		text, err := json.MarshalIndent(body, "", "\t")
		if err != nil {
			text = []byte(err.Error()) // strings and numbers always encode
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("X-Load-Balancing-Endpoint-Weight", strconv.FormatInt(body.LocalEndpoints, 10))
		if body.LocalEndpoints == 0 || !body.ServiceProxyHealthy {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_, _ = w.Write(text) // who has gone does not need it
	})
}
