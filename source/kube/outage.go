// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
)

const (
	// gatherFor is the time from the first failure to the line in the log, so that the
	// line has every resource: they fail one after another within it.
	gatherFor = time.Second
	// repeatEvery is how often an outage that lasts is logged again. From the first
	// repetition on, it is an error: most outages are restarts of the server.
	repeatEvery = time.Minute
)

// outage logs the times during which requests fail, one for all resources of a Source. It
// is safe for concurrent use.
type outage struct {
	log *zap.Logger

	mu    sync.Mutex
	began time.Time // zero while requests for all resources succeed
	err   error     // the newest one
	// failing are the resources that fail now, hit those that failed since the outage began.
	failing, hit []string
	told         bool
	// next logs it, for the first time or again.
	next *time.Timer
}

// failed records that requests for a resource fail.
func (o *outage) failed(resource string, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.err = err
	if o.began.IsZero() {
		o.began = time.Now()
		began := o.began
		o.next = time.AfterFunc(gatherFor, func() { o.lasts(began) })
	}
	for _, list := range []*[]string{&o.failing, &o.hit} {
		if at, found := slices.BinarySearch(*list, resource); !found {
			*list = slices.Insert(*list, at, resource)
		}
	}
}

// lasts logs the outage that began then, if it has not ended, and sets the time of the next
// line.
func (o *outage) lasts(began time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.began.Equal(began) {
		return
	}
	o.tell(o.failing)
	age := time.Since(began)
	o.next.Reset(repeatEvery - age%repeatEvery)
}

// tell logs that requests for these resources fail. The lock is held.
func (o *outage) tell(resources []string) {
	lasted := time.Since(o.began)
	warnFirst := zap.WarnLevel
	if lasted >= repeatEvery {
		warnFirst = zap.ErrorLevel
	}
	o.told = true
	o.log.Log(warnFirst, "cannot read from the API server; using the last known state",
		zap.Strings("resources", slices.Clone(resources)), zap.Duration("duration", lasted.Round(time.Millisecond)), zap.Error(o.err))
}

// succeeded records that a request for a resource succeeded. With the last resource the
// outage ends.
func (o *outage) succeeded(resource string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	at, found := slices.BinarySearch(o.failing, resource)
	if !found {
		return
	}
	if len(o.failing) == 1 && !o.told {
		o.tell(o.hit) // the outage was too short for the timer, and is not logged yet
	}
	if o.failing = slices.Delete(o.failing, at, at+1); len(o.failing) > 0 {
		return
	}
	o.log.Info("API server reachable again",
		zap.Strings("resources", o.hit), zap.Duration("duration", time.Since(o.began).Round(time.Millisecond)))
	o.stop()
}

// close stops logging.
func (o *outage) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.stop()
}

// stop forgets the outage. The lock is held.
func (o *outage) stop() {
	if o.next != nil {
		o.next.Stop()
	}
	o.began, o.err, o.told, o.next = time.Time{}, nil, false, nil
	o.failing, o.hit = nil, nil // not hit[:0], because the last log line refers to hit
}
