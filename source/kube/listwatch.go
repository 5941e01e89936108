package kube

import (
	"context"
	"errors"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// listWatch asks for one resource in all namespaces, with its selectors, and
// reports the result to contact.
type listWatch struct {
	client  rest.Interface
	contact *contact
	line    *line
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
	// told is the last error that the reflector received.
	told error
}

var (
	_ cache.ListerWatcher            = (*listWatch)(nil)
	_ cache.ListerWatcherWithContext = (*listWatch)(nil)
)

// ListWithContext implements cache.ListerWithContext. A reflector's first list asks for any version ("0"), and
// a watch cache that lags would bring back what a former process has already replaced. So the
// newest version is asked for: a server with consistent reads (Kubernetes 1.31) takes that from its cache,
// but a page from etcd, as an older server does in any case. A server that has failed to, say because
// etcd has no quorum, is asked for any version: a node that has no rules must get some.
func (l *listWatch) ListWithContext(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	if options.ResourceVersion == "0" && l.misses < missesMax {
		options.ResourceVersion, options.Limit = "", 0
	}
	return ask(ctx, l, func(ctx context.Context) (runtime.Object, error) { return l.request(options).Do(ctx).Get() })
}

// WatchWithContext implements cache.WatcherWithContext.
func (l *listWatch) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	options.Watch = true
	return ask(ctx, l, func(ctx context.Context) (watch.Interface, error) { return l.request(options).Watch(ctx) })
}

// missesMax is how many requests for one resource may fail before others stop waiting
// for it.
const missesMax = 3

// ask repeats a request until there is an answer, or ctx ends. It hides requests without
// an answer from the reflector, which would fall back to a plain list and sleep.
func ask[T any](ctx context.Context, l *listWatch, request func(context.Context) (T, error)) (T, error) {
	var none T
	for {
		if err := l.line.await(ctx, l.contact.resource, func(why error) { l.contact.failed(time.Now(), why) }); err != nil {
			return none, err
		}
		r := &reply{}
		got, err := request(context.WithValue(ctx, replyKey{}, r))
		if ctx.Err() != nil {
			return none, ctx.Err()
		}
		if r.answered {
			if l.told = l.note(ctx, err); l.told != nil {
				return none, l.told
			}
			return got, nil
		}
		if r.err != nil {
			err = r.err // client-go may have turned it into an empty watch
		}
		l.contact.failed(time.Now(), err)
		l.line.lost(l.contact.resource, err)
		l.missed(missesMax)
	}
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

// retryAfterMax bounds how long a server can put off the next request.
const retryAfterMax = time.Minute

// note records the answer to a request. It blocks until it is time to ask again, or
// ctx ends, when an optional resource is absent or the server says when to ask.
func (l *listWatch) note(ctx context.Context, err error) error {
	if err == nil {
		l.contact.answered(time.Now())
		l.line.answered(l.contact.resource)
		l.misses = 0
		return nil
	}
	if l.absentRetry <= 0 || !(apierrors.IsNotFound(err) || apierrors.IsForbidden(err)) {
		l.contact.failed(time.Now(), err)
		if status := apierrors.APIStatus(nil); !errors.As(err, &status) || overloaded(int(status.Status().Code)) {
			l.line.refused(l.contact.resource)
			l.missed(missesMax)
		} else {
			l.line.heard(l.contact.resource)
			l.missed(1)
		}
		if seconds, asked := apierrors.SuggestsClientDelay(err); asked {
			pause(ctx, min(time.Duration(seconds)*time.Second, retryAfterMax))
		}
		return err
	}
	l.contact.missing(time.Now(), err, l.absentRetry)
	l.line.heard(l.contact.resource)
	l.missed(1)
	pause(ctx, l.absentRetry)
	return err
}

// missed counts a request that failed, and calls failed from the given number on.
func (l *listWatch) missed(from int) {
	if l.misses++; l.misses >= from && l.failed != nil {
		l.failed()
	}
}

// overloaded reports whether a status blames the server, not the request.
func overloaded(status int) bool {
	return status == http.StatusTooManyRequests || status >= http.StatusInternalServerError
}

// pause waits for a duration, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
