package faults

import (
	"net/netip"
	"sync"
	"time"

	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source"
)

// churn keeps changing the endpoints of some quiet Services, so that there is
// always something to write.
type churn struct {
	cache *source.Cache
	stop  chan struct{}
	done  sync.WaitGroup
}

// The quiet Services that churn changes are those from churnFrom on.
const (
	churnFrom  = 20
	churnPause = 2 * time.Millisecond
)

func startChurn(cache *source.Cache) *churn {
	c := &churn{cache: cache, stop: make(chan struct{})}
	c.done.Go(func() {
		for round := 0; ; round++ {
			select {
			case <-c.stop:
				return
			case <-time.After(churnPause):
				c.turn(churnFrom+round%(quietServices-churnFrom), round)
			}
		}
	})
	return c
}

// turn gives a Service other endpoints.
func (c *churn) turn(n, round int) {
	for _, family := range service.Families {
		slice := newSlice(quietKey(n), family, []netip.Addr{
			addr(family, "10.246.1.%d", "fd00:10:246:1::%d", round%200+1),
			addr(family, "10.246.2.%d", "fd00:10:246:2::%d", n),
		})
		c.cache.SetSlice(slice)
	}
}

// end stops, and puts things back as they were.
func (c *churn) end() {
	close(c.stop)
	c.done.Wait()
	fillQuiet(c.cache, churnFrom, quietServices)
}

// isCalm tells whether a Service (or the node) stays as it is.
func isCalm(key service.Key) bool {
	for n := churnFrom; n < quietServices; n++ {
		if key == quietKey(n) {
			return false
		}
	}
	return true
}
