// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/sluice-proxy/sluice/internal/sleep"
)

// listWatch asks for one resource in all namespaces, with its selectors, and
// reports the result to contact.
type listWatch struct {
	client  rest.Interface
	contact *contact
	// labels and fields are the selectors; empty means everything.
	labels, fields string
	// absentRetry, when positive, makes the resource optional: the answer "not
	// found" or "forbidden" is held back for that long, which paces the
	// reflector.
	absentRetry time.Duration
	// failed, when set, is called when the resource is unavailable for now: a request was
	// rejected, or missesMax in a row failed on the server's side.
	failed func()
	misses int
	// overload is the pause after the next answer of an overloaded server, and firstOverload the one
	// after the first such answer.
	overload, firstOverload wait.Backoff
	// told is the last error that the reflector received.
	told error
}

var (
	_ cache.ListerWatcher            = (*listWatch)(nil)
	_ cache.ListerWatcherWithContext = (*listWatch)(nil)
)

// ListWithContext implements cache.ListerWithContext. A reflector's first list asks for any version ("0"), and a watch
// cache that lags would bring back objects that a previous process had already replaced. So ListWithContext asks for
// the newest version, without pages: a server with consistent reads (Kubernetes 1.31) takes that from its cache, but
// pages from etcd. An older server uses etcd in both cases. After missesMax failures, for example because etcd has no
// quorum, it asks for any version: a node without rules must get some.
func (l *listWatch) ListWithContext(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	if options.ResourceVersion == "0" && l.misses < missesMax {
		options.ResourceVersion, options.Limit = "", 0
	}
	list, err := l.request(options).Do(ctx).Get()
	return list, l.note(ctx, err)
}

// WatchWithContext implements cache.WatcherWithContext.
func (l *listWatch) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	options.Watch = true
	events, err := l.request(options).Watch(ctx)
	if err := l.note(ctx, err); err != nil {
		return nil, err
	}
	return events, nil
}

// List implements cache.ListerWatcher, which reflectors accept and do not call.
func (l *listWatch) List(options metav1.ListOptions) (runtime.Object, error) {
	return l.ListWithContext(context.Background(), options)
}

// Watch implements cache.ListerWatcher, which reflectors accept and do not call.
func (l *listWatch) Watch(options metav1.ListOptions) (watch.Interface, error) {
	return l.WatchWithContext(context.Background(), options)
}

func (l *listWatch) request(options metav1.ListOptions) *rest.Request {
	options.LabelSelector = l.labels
	options.FieldSelector = l.fields
	// client-go's own retries, up to ten, would hide failures for long.
	return l.client.Get().Resource(l.contact.resource).MaxRetries(0).VersionedParams(&options, metav1.ParameterCodec)
}

const (
	// missesMax is how many answers about one resource may blame the server before others
	// stop waiting for the resource.
	missesMax = 3
	// retryAfterMax bounds how long a server can put off the next request.
	retryAfterMax = time.Minute
)

// overload is the pause after an answer of an overloaded server that does not say when to
// ask again. It is longer than retry's, so that the nodes of a large cluster let the server
// recover.
func overload() wait.Backoff {
	return wait.Backoff{Duration: 500 * time.Millisecond, Cap: 8 * time.Second, Steps: 5, Factor: 2}
}

// note records the outcome of a request, and returns the error for the reflector. It blocks
// until it is time to ask again, or ctx ends, when an optional resource is absent or the
// server is overloaded.
func (l *listWatch) note(ctx context.Context, err error) error {
	l.told = l.judge(ctx, err)
	return l.told
}

func (l *listWatch) judge(ctx context.Context, err error) error {
	if lost := l.contact.lost(); lost != nil {
		// client-go turns some of these errors into an empty watch. To the reflector they all are
		// "connection refused": it retries its request after a pause, and does not list again.
		return fmt.Errorf("%w: %w", syscall.ECONNREFUSED, lost)
	}
	if err == nil {
		l.contact.answered(time.Now())
		l.misses, l.overload = 0, l.firstOverload
		return nil
	}
	if l.absentRetry > 0 && (apierrors.IsNotFound(err) || apierrors.IsForbidden(err)) {
		l.contact.missing(time.Now(), err, l.absentRetry)
		l.missed(1)
		sleep.For(ctx, l.absentRetry)
		return err
	}
	l.contact.failed(time.Now(), err)
	switch {
	case asksForAnother(err):
	case overloaded(err):
		l.missed(missesMax)
		seconds, _ := apierrors.SuggestsClientDelay(err)
		sleep.For(ctx, max(l.overload.Step(), min(time.Duration(seconds)*time.Second, retryAfterMax)))
	default:
		l.missed(1)
	}
	return err
}

// missed counts a request that failed, and calls failed from the given number on.
func (l *listWatch) missed(from int) {
	if l.misses++; l.misses >= from && l.failed != nil {
		l.failed()
	}
}

// overloaded reports whether an error blames the server, not the request.
func overloaded(err error) bool {
	status := apierrors.APIStatus(nil)
	if !errors.As(err, &status) {
		return true
	}
	code := status.Status().Code
	return code == http.StatusTooManyRequests || code >= http.StatusInternalServerError
}
