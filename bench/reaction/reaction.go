package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	kwatch "k8s.io/apimachinery/pkg/watch"

	"github.com/sluice-proxy/sluice/bench/rig"
)

// reaction is how long changes of one kind took, from the watch event to the aggregator's event
// that its batch is in the kernel, and what one of them cost.
type reaction struct {
	Services, Endpoints int
	Kind, Pace          string
	Changes             int
	P50, P99, Max       time.Duration
	// Write is the median of what the writes took: encoding and the kernel.
	Write time.Duration
	// Objects, Lines and Bytes are per change, over all domains.
	Objects, Lines, Bytes float64
	Batches               int
	// Processor is the CPU time of this process per change, making the API objects included,
	// and System the kernel's part. Resident is its resident size at the end, in MiB.
	Processor, System time.Duration
	Resident          float64
	// Audits is how many ran meanwhile. The longest took AuditTook.
	Audits    int           `json:",omitempty"`
	AuditTook time.Duration `json:",omitempty"`
}

// pace is how changes follow each other: at a fixed rate, or, if the rate is 0, each as soon as the
// one before is in the kernel.
type pace struct {
	name string
	rate float64
}

const backToBack = "back to back"

func (o options) paces() []pace {
	return []pace{{fmt.Sprintf("%g/s", o.rate), o.rate}, {backToBack, 0}}
}

// measureReactions measures every kind of change at every pace.
func measureReactions(ctx context.Context, o options, m measurement, r *result) (err error) {
	if m.size < o.events {
		return fmt.Errorf("%d Services are too few for %d changes of different ones", m.size, o.events)
	}
	subject, err := startFilled(ctx, o, newCluster(m.size, o.endpoints))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, subject.stop()) }()
	return profiled(o, m, func() error {
		for _, p := range o.paces() {
			for _, k := range kinds {
				found, err := subject.react(ctx, o.events, p, k)
				if err != nil {
					return fmt.Errorf("%s, %s: %w", k.name, p.name, err)
				}
				r.Reactions = append(r.Reactions, found)
			}
			rig.Progress("measured at %s", p.name)
		}
		return nil
	})
}

// measureHot measures one Service with many endpoints, of which one is replaced again and again,
// among a thousand others.
func measureHot(ctx context.Context, o options, m measurement, r *result) (err error) {
	const others = 1000
	c := newCluster(others, o.endpoints)
	hot := kind{fmt.Sprintf("1 of %d replaced", m.size), func(*cluster, int) int { return 0 }, (*cluster).replaceEndpoint}
	c.change(0, func(numbers []int) []int {
		for len(numbers) < m.size {
			numbers = append(numbers, c.unused())
		}
		return numbers
	})
	subject, err := startRig(ctx, o, c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, subject.stop()) }()
	if _, err := subject.fill(ctx); err != nil {
		return err
	}
	return profiled(o, m, func() error {
		found, err := subject.react(ctx, o.events, pace{name: backToBack}, hot)
		found.Endpoints = m.size
		r.Reactions = append(r.Reactions, found)
		return err
	})
}

// measureAudit replaces endpoints at a rate until the kernel was read back once. Nothing can be
// written meanwhile.
func measureAudit(ctx context.Context, o options, m measurement, r *result) (err error) {
	// Mode nftables audits less often than a measurement lasts.
	const pause, period = 20, 35
	o.audit = pause * time.Second
	subject, err := startFilled(ctx, o, newCluster(m.size, o.endpoints))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, subject.stop()) }()
	return profiled(o, m, func() error {
		k := kind{"replaced for 35 s", spread, (*cluster).replaceEndpoint}
		found, err := subject.react(ctx, int(o.rate*period), pace{fmt.Sprintf("%g/s", o.rate), o.rate}, k)
		r.Reactions = append(r.Reactions, found)
		return err
	})
}

// addedShare is the share of Services added in the second part of rate: one in so many changes.
const addedShare = 100

// measureRate replaces endpoints at a high rate, first nothing else, and then with Services added in
// between: one transaction carries both, and the kernel checks the rules at each addition.
func measureRate(ctx context.Context, o options, m measurement, r *result) (err error) {
	subject, err := startFilled(ctx, o, newCluster(m.size, o.endpoints))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, subject.stop()) }()
	replaced := kind{"replaced, sustained", spread, (*cluster).replaceEndpoint}
	added := kind{"Service added meanwhile", behind, (*cluster).addService}
	p, changes := pace{fmt.Sprintf("%g/s", o.high), o.high}, int(o.high*o.lasting.Seconds())
	return profiled(o, m, func() error {
		alone, err := subject.react(ctx, changes, p, replaced)
		if err != nil {
			return err
		}
		r.Reactions = append(r.Reactions, alone)
		rig.Progress("measured %s alone", replaced.name)
		isAdded := func(event int) bool { return event%addedShare == addedShare-1 }
		took, used, err := subject.drive(ctx, changes/3, p, func(event int) kind {
			if isAdded(event) {
				return added
			}
			return replaced
		})
		if err != nil {
			return err
		}
		var ofReplaced, ofAdded []time.Duration
		for event, t := range took {
			if isAdded(event) {
				ofAdded = append(ofAdded, t)
			} else {
				ofReplaced = append(ofReplaced, t)
			}
		}
		done := subject.take()
		r.Reactions = append(r.Reactions, subject.summarize(ofReplaced, p, replaced.name+", Services added", used, done),
			subject.summarize(ofAdded, p, added.name, used, done))
		return nil
	})
}

// react makes changes of one kind and measures their times.
func (r *subject) react(ctx context.Context, changes int, p pace, k kind) (reaction, error) {
	took, used, err := r.drive(ctx, changes, p, func(int) kind { return k })
	if err != nil {
		return reaction{}, err
	}
	return r.summarize(took, p, k.name, used, r.take()), nil
}

// drive makes changes and returns how long each took, and the CPU time of this process. It
// makes the objects of a change before that is due, so that after each event the delivering
// goroutine only waits, as a reflector does.
func (r *subject) drive(ctx context.Context, changes int, p pace, pick func(event int) kind) ([]time.Duration, rig.CPU, error) {
	took := make([]time.Duration, changes)
	began, done := make([]time.Time, changes), make([]<-chan time.Time, changes)
	wait := func(i int) error {
		at, err := r.await(ctx, fmt.Sprintf("change %d", i), done[i])
		took[i], done[i] = at.Sub(began[i]), nil
		return err
	}
	r.take()
	before, start := usedNow(), time.Now()
	for i := range changes {
		k := pick(i)
		c := k.change(r.cluster, k.service(r.cluster, i))
		done[i] = r.expect(c)
		if p.rate > 0 {
			time.Sleep(time.Until(start.Add(time.Duration(float64(i) / p.rate * float64(time.Second)))))
		}
		began[i] = time.Now()
		for _, event := range c.events {
			if err := r.deliver(event); err != nil {
				return nil, rig.CPU{}, err
			}
		}
		if p.rate == 0 {
			if err := wait(i); err != nil {
				return nil, rig.CPU{}, err
			}
		}
	}
	for i := range changes {
		if done[i] != nil {
			if err := wait(i); err != nil {
				return nil, rig.CPU{}, err
			}
		}
	}
	return took, usedNow().Minus(before), nil
}

// summarize describes changes of one kind, and the work of all that were made meanwhile.
func (r *subject) summarize(took []time.Duration, p pace, kind string, used rig.CPU, done counts) reaction {
	n := float64(len(took))
	return reaction{
		Services: r.cluster.services, Endpoints: r.cluster.endpoints, Kind: kind, Pace: p.name, Changes: len(took),
		P50: rig.Percentile(took, 50), P99: rig.Percentile(took, 99), Max: rig.Percentile(took, 100),
		Write:   rig.Percentile(done.Took, 50),
		Objects: float64(done.Written.Objects) / n, Lines: float64(done.Written.Lines) / n, Bytes: float64(done.Written.Bytes) / n,
		Batches: len(done.Took), Audits: done.Audits, AuditTook: done.AuditTook,
		Processor: used.Sum() / time.Duration(len(took)), System: used.System / time.Duration(len(took)), Resident: rig.MiB(os.Getpid(), rig.Resident),
	}
}

// idleWork is the cost of events that change nothing.
type idleWork struct {
	Services, Events int
	// Rendered counts Services rendered, Batches and Objects what was written.
	Rendered int64
	Batches  int
	Objects  int
	// PerEvent is how long the delivery of one took.
	PerEvent time.Duration
}

// measureResync delivers every object again as it is, then with other metadata, then all of them as
// a list, as after an outage of the API server.
func measureResync(ctx context.Context, o options, m measurement, r *result) (err error) {
	subject, err := startFilled(ctx, o, newCluster(m.size, o.endpoints))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, subject.stop()) }()
	subject.take()
	subject.rendered.Store(0)
	return profiled(o, m, func() error {
		work := idleWork{Services: m.size}
		var delivering time.Duration
		for _, touch := range []func(*corev1.Service, *discoveryv1.EndpointSlice){
			func(*corev1.Service, *discoveryv1.EndpointSlice) {},
			touchMetadata,
		} {
			took, err := subject.repeat(touch)
			if err != nil {
				return err
			}
			delivering += took
			work.Events += 2 * m.size
		}
		work.PerEvent = delivering / time.Duration(work.Events)
		if err := subject.list(); err != nil {
			return err
		}
		// Any work that was started ends long before this is over.
		time.Sleep(time.Second)
		done := subject.take()
		work.Rendered, work.Batches, work.Objects = subject.rendered.Load(), len(done.Took), done.Written.Objects
		r.Resync = &work
		select {
		case err := <-subject.failed:
			return fmt.Errorf("after the events: %w", err)
		default:
			return nil
		}
	})
}

// repeat delivers every Service and its slice once more, and returns how long that took.
func (r *subject) repeat(touch func(*corev1.Service, *discoveryv1.EndpointSlice)) (time.Duration, error) {
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
