// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// contact records whether requests for one resource succeed. It is safe for concurrent use.
type contact struct {
	resource string
	log      *zap.Logger
	outage   *outage // logs failures, for all resources

	mu      sync.Mutex
	heard   time.Time // last sign of life from the server; zero before the first
	failing time.Time // since when requests fail; zero while they do not
	err     error
	absent  bool // the server does not serve the resource, or not to us
	// unanswered is why the last request got no answer; nil if it got one.
	unanswered error
}

// answers wraps the transport of the client for one resource, and tells its contact which
// requests get no answer. An answer is the header of a response: client-go returns an empty watch when the server
// closes the connection.
type answers struct {
	contact *contact
	next    http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (a answers) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := a.next.RoundTrip(request)
	lost := err
	if err != nil {
		lost = fmt.Errorf("no answer from %s: %w", request.URL.Host, err)
		a.contact.failed(time.Now(), lost)
	}
	a.contact.mu.Lock()
	defer a.contact.mu.Unlock()
	a.contact.unanswered = lost
	return response, err
}

// lost returns why the last request got no answer; nil if it got one.
func (c *contact) lost() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.unanswered
}

// Status is the state of one watched resource.
type Status struct {
	// Resource is the plural name, for example "endpointslices".
	Resource string
	// Heard is when the server last sent anything about it; zero if never. A
	// quiet watch is heard of about once a minute, by a bookmark.
	Heard time.Time
	// FailingSince is zero while requests succeed.
	FailingSince time.Time
	// Err is the last error while FailingSince is set or Absent is true.
	Err error
	// Absent means that the resource is optional, and that the server does not serve
	// it or does not let us read it.
	Absent bool
}

func (c *contact) status() Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Status{
		Resource: c.resource, Heard: c.heard, FailingSince: c.failing, Err: c.err, Absent: c.absent,
	}
}

// answered records an answer at now.
func (c *contact) answered(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.heard = now
	c.err, c.absent = nil, false
	c.failing = time.Time{}
	c.outage.succeeded(c.resource)
}

// failed records an error at now. An error that only asks for another kind of request
// counts as an answer.
func (c *contact) failed(now time.Time, err error) {
	if errors.Is(err, context.Canceled) {
		return
	}
	if asksForAnother(err) {
		c.answered(now)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = err
	if c.failing.IsZero() {
		c.failing = now
	}
	c.outage.failed(c.resource, err)
}

// missing records that an optional resource is not available, and warns once.
func (c *contact) missing(now time.Time, err error, retry time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.heard = now
	c.failing = time.Time{}
	c.outage.succeeded(c.resource)
	c.err = err
	if c.absent {
		return
	}
	c.absent = true
	c.log.Warn("optional API resource is not available",
		zap.String("resource", c.resource), zap.Duration("every", retry), zap.Error(err))
}

// asksForAnother reports whether the server is well: the resource version is too old
// (410 Gone, answered by a relist) or watch-lists are not known to it (422
// Invalid, answered by a plain list).
func asksForAnother(err error) bool {
	return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || apierrors.IsInvalid(err)
}
