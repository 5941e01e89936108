package kube

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// listWatch asks for one resource in all namespaces, with its selectors, and
// tells contact how that went.
type listWatch struct {
	client  rest.Interface
	contact *contact
	// labels and fields are the selectors; empty means everything.
	labels, fields string
	// absentRetry, when positive, makes the resource optional: the answer "not
	// found" or "forbidden" is held back for that long, which paces the
	// reflector.
	absentRetry time.Duration
	// failed, when set, is called after each request that failed.
	failed func()
}

var (
	_ cache.ListerWatcher            = (*listWatch)(nil)
	_ cache.ListerWatcherWithContext = (*listWatch)(nil)
)

// ListWithContext implements cache.ListerWithContext.
func (l *listWatch) ListWithContext(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	list, err := l.request(options).Do(ctx).Get()
	if err := l.note(ctx, err); err != nil {
		return nil, err
	}
	return list, nil
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
	return l.client.Get().Resource(l.contact.resource).VersionedParams(&options, metav1.ParameterCodec)
}

// note records the outcome of a request. It blocks when an optional resource is
// absent, until it is time to ask again or ctx ends.
func (l *listWatch) note(ctx context.Context, err error) error {
	if err == nil {
		l.contact.answered(time.Now())
		return nil
	}
	if l.failed != nil {
		l.failed()
	}
	if l.absentRetry <= 0 || !(apierrors.IsNotFound(err) || apierrors.IsForbidden(err)) {
		l.contact.failed(time.Now(), err)
		return err
	}
	l.contact.missing(time.Now(), err, l.absentRetry)
	timer := time.NewTimer(l.absentRetry)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
	return err
}
