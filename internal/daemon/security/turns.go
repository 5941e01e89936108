// SPDX-License-Identifier: Apache-2.0

package security

import (
	"net/netip"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/util/flowcontrol"
)

const (
	// knownFor is how long a caller that was allowed has precedence over strangers.
	knownFor = time.Hour
	// strangersRate and strangersBurst bound the requests of all unknown callers that ask the API server, per second.
	strangersRate, strangersBurst = 5, 20
	// sourceRate and sourceBurst bound those from one address.
	sourceRate, sourceBurst = 1, 5
	// callerRate and callerBurst bound those of a caller that was allowed before.
	callerRate, callerBurst = 20, 50
)

// turns decides who may ask the API server. Strangers are callers that were not allowed before, at an address without
// such a caller. They share a rate and half of the places, and no address gets more than its part. Strangers keep out
// neither callers that were allowed, nor a new token of such a caller, nor each other. Any goroutine may use it.
type turns struct {
	// known are the callers that were allowed, by their digest, and their addresses, which a new token does not change.
	// Strangers cannot fill them.
	known, knownFrom *cache.LRUExpireCache
	// callers are by digest, familiar and sources by address.
	callers, familiar, sources *buckets
	strangers                  flowcontrol.RateLimiter
	places, strangersPlaces    chan struct{}
}

func newTurns(newCache func() *cache.LRUExpireCache) turns {
	return turns{
		known: newCache(), knownFrom: newCache(),
		callers:   &buckets{all: newCache(), rate: callerRate, burst: callerBurst},
		familiar:  &buckets{all: newCache(), rate: strangersRate, burst: strangersBurst},
		sources:   &buckets{all: newCache(), rate: sourceRate, burst: sourceBurst},
		strangers: flowcontrol.NewTokenBucketRateLimiter(strangersRate, strangersBurst),
		places:    make(chan struct{}, inFlight/2), strangersPlaces: make(chan struct{}, inFlight/2),
	}
}

// allowed notes that a caller was allowed something.
func (t *turns) allowed(who digest, from netip.Prefix) {
	t.known.Add(who, true, knownFor)
	t.knownFrom.Add(from, true, knownFor)
}

// take returns a function that ends the turn of a caller, or why the caller gets none.
func (t *turns) take(who digest, from netip.Prefix) (done func(), busy string) {
	places := t.places
	if _, known := t.known.Get(who); known {
		if !t.callers.accept(who) {
			return nil, "too many questions of this caller"
		}
	} else if _, known := t.knownFrom.Get(from); known {
		if !t.familiar.accept(from) {
			return nil, "too many unknown callers at this address"
		}
	} else {
		if !t.sources.accept(from) || !t.strangers.TryAccept() {
			return nil, "too many unknown callers"
		}
		places = t.strangersPlaces
	}
	select {
	case places <- struct{}{}:
		return func() { <-places }, ""
	default:
		return nil, "too many callers are being checked"
	}
}

// buckets limit a rate by key. The least recently used key is forgotten.
type buckets struct {
	mu    sync.Mutex
	all   *cache.LRUExpireCache
	rate  float32
	burst int
}

func (b *buckets) accept(key any) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	of, found := b.all.Get(key)
	if !found {
		of = flowcontrol.NewTokenBucketRateLimiter(b.rate, b.burst)
	}
	b.all.Add(key, of, knownFor)
	return of.(flowcontrol.RateLimiter).TryAccept()
}
