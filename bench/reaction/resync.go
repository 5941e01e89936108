package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	kwatch "k8s.io/apimachinery/pkg/watch"
)

// idleWork is what events that change nothing have cost.
type idleWork struct {
	Services, Events int
	// Rendered counts Services rendered, Batches and Objects what was written.
	Rendered int64
	Batches  int
	Objects  int
	// PerEvent is how long the delivery of one took.
	PerEvent time.Duration
}

// measureResync delivers every object again as it is, then with other metadata,
// then all of them as a list, as after an outage of the API server.
func measureResync(ctx context.Context, o options, m measurement, r *result) (err error) {
	rig, err := startRig(ctx, newCluster(m.size, o.endpoints))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rig.stop()) }()
	if _, err := rig.fill(ctx); err != nil {
		return err
	}
	rig.take()
	rig.rendered.Store(0)
	return profiled(o, m, func() error {
		work := idleWork{Services: m.size}
		var delivering time.Duration
		for _, touch := range []func(*corev1.Service, *discoveryv1.EndpointSlice){
			func(*corev1.Service, *discoveryv1.EndpointSlice) {},
			touchMetadata,
		} {
			took, err := rig.repeat(touch)
			if err != nil {
				return err
			}
			delivering += took
			work.Events += 2 * m.size
		}
		work.PerEvent = delivering / time.Duration(work.Events)
		if err := rig.list(); err != nil {
			return err
		}
		// What was set off is done long before this is over.
		time.Sleep(time.Second)
		done := rig.take()
		work.Rendered, work.Batches, work.Objects = rig.rendered.Load(), len(done.Took), done.Written.Objects
		r.Resync = &work
		select {
		case err := <-rig.failed:
			return fmt.Errorf("after the events: %w", err)
		default:
			return nil
		}
	})
}

// repeat delivers every Service and its slice once more, and gives the time that
// their delivery took.
func (r *rig) repeat(touch func(*corev1.Service, *discoveryv1.EndpointSlice)) (time.Duration, error) {
	var took time.Duration
	for i := range r.cluster.services {
		svc, slice := r.cluster.service(i), r.cluster.slice(i, 0)
		touch(svc, slice)
		began := time.Now()
		err := errors.Join(r.deliver(kwatch.Event{Type: kwatch.Modified, Object: svc}),
			r.deliver(kwatch.Event{Type: kwatch.Modified, Object: slice}))
		if err != nil {
			return 0, err
		}
		took += time.Since(began)
	}
	return took, nil
}

// touchMetadata changes what no rule depends on.
func touchMetadata(svc *corev1.Service, slice *discoveryv1.EndpointSlice) {
	svc.Labels["touched"], slice.Labels["touched"] = "yes", "yes"
	svc.Annotations = map[string]string{"example.com/touched": "yes"}
	svc.Spec.Selector["touched"] = "yes"
	slice.Annotations[corev1.EndpointsLastChangeTriggerTime] = created.Add(time.Hour).Format(time.RFC3339)
	for i := range slice.Endpoints {
		slice.Endpoints[i].TargetRef.ResourceVersion = svc.ResourceVersion
	}
}
