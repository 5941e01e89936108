// SPDX-License-Identifier: Apache-2.0

package actors

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// town is a directory with a supervisor that starts a goroutine per wish, a truth
// that can be set, and one domain that keeps the newest fragment per key.
type town struct {
	*Directory
	mu        sync.Mutex
	specs     map[service.Key]*service.Spec
	slices    map[service.Key][]*service.Slice
	fragments map[service.Key]*dataplane.Fragment
	count     int
	nudges    int
	wanted    sync.WaitGroup
	ctx       context.Context
	told      []Event
	inc       uint64
	now       *service.NodeFacts // nil for facts
}

type lease struct {
	incarnation uint64
	woken       chan struct{}
}

func newLease(incarnation uint64) lease { return lease{incarnation, make(chan struct{}, 1)} }

func (l lease) Incarnation() uint64 { return l.incarnation }

func (l lease) Wake() {
	select {
	case l.woken <- struct{}{}:
	default:
	}
}

// keep calls a body until it rests no more.
func keep(ctx context.Context, l Lease, woken <-chan struct{}, body Body) error {
	for {
		if rests, err := body(ctx, l); !rests || err != nil {
			return err
		}
		select {
		case <-woken:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
func (lease) Begin()       {}
func (lease) End()         {}
func (lease) Fenced() bool { return false }

func (t *town) Want(key service.Key, body Body) {
	t.mu.Lock()
	t.inc++
	l := newLease(t.inc)
	t.mu.Unlock()
	t.wanted.Go(func() { _ = keep(t.ctx, l, l.woken, body) })
}

func (t *town) Nudge(service.Key) { t.mu.Lock(); defer t.mu.Unlock(); t.nudges++ }

func (t *town) Snapshot(key service.Key) service.Snapshot {
	t.mu.Lock()
	defer t.mu.Unlock()
	return service.Snapshot{Spec: t.specs[key], Slices: t.slices[key]}
}

func (t *town) Facts() *service.NodeFacts {
	t.mu.Lock()
	defer t.mu.Unlock()
	return cmp.Or(t.now, facts)
}

type renderer struct{}

func (renderer) Service(ctx context.Context, v *service.View, _ *service.NodeFacts) []dataplane.Object {
	return objects(v)
}

func (renderer) Naming() dataplane.Naming { return nil }

func (renderer) Node(*service.NodeFacts) []dataplane.Object {
	return []dataplane.Object{{ID: dataplane.ID{Name: "scaffold"}}}
}

func build(t *testing.T) *town {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	v := &town{specs: map[service.Key]*service.Spec{}, slices: map[service.Key][]*service.Slice{},
		fragments: map[service.Key]*dataplane.Fragment{}, ctx: ctx}
	d, err := NewDirectory(Config{
		Starter: v, State: v,
		Outputs: []Output{{Name: "one", Renderer: renderer{}, Submit: func(f *dataplane.Fragment) {
			v.mu.Lock()
			v.fragments[f.Key] = f
			v.count++
			v.mu.Unlock()
		}}},
		Listen: func(e Event) { v.mu.Lock(); defer v.mu.Unlock(); v.told = append(v.told, e) },
	})
	if err != nil {
		t.Fatal(err)
	}
	v.Directory = d
	t.Cleanup(func() { cancel(); v.wanted.Wait() })
	return v
}

func (t *town) set(key service.Key, s *service.Spec) {
	t.mu.Lock()
	t.specs[key] = s
	t.mu.Unlock()
	t.PostSpec(key, s, Cause{})
}

func (t *town) fragment(key service.Key) *dataplane.Fragment {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.fragments[key]
}

func named(i int) service.Key { return service.Key{Namespace: "ns", Name: fmt.Sprintf("s%d", i)} }

func specNamed(i int) *service.Spec {
	s := spec()
	s.Key = named(i)
	return s
}

// TestDirectory_ActorLivesUntilLastAck: an actor lives from the first post of its Service to the ack of its tombstone.
// A recreated Service gets a later revision.
func TestDirectory_ActorLivesUntilLastAck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := build(t)
		v.Start([]service.Key{service.Node})
		v.PostSlice(web, "s", slice("s", "10.0.0.1"), Cause{}) // nobody to tell
		v.mu.Lock()
		v.slices[web] = []*service.Slice{slice("s", "10.0.0.1")}
		v.mu.Unlock()
		v.set(web, spec())
		synctest.Wait()
		if f := v.fragment(web); f == nil || f.Objects[0].Body != "10.0.0.1:8080 " {
			t.Fatalf("fragment %+v", f)
		}
		if v.fragment(service.Node) == nil {
			t.Fatal("no scaffold")
		}
		v.set(web, nil)
		synctest.Wait()
		gone := v.fragment(web)
		if !gone.Gone || v.Len() != 2 {
			t.Fatalf("fragment %+v, %d addresses", gone, v.Len())
		}
		v.PostAck(dataplane.Ack{Key: web, Domain: "one", Revision: gone.Revision})
		synctest.Wait()
		if v.Len() != 1 {
			t.Fatalf("%d addresses, want the node's alone", v.Len())
		}
		// The same key again is a new life with a later incarnation.
		v.set(web, spec())
		synctest.Wait()
		if f := v.fragment(web); f.Gone || f.Revision.Compare(gone.Revision) <= 0 {
			t.Fatalf("fragment %+v", f)
		}
	})
}

// TestDirectory_FactsReachEveryActor: posted facts reach every actor, and an actor whose output stays the same submits
// no fragment.
func TestDirectory_FactsReachEveryActor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := build(t)
		v.Start([]service.Key{service.Node})
		for i := range 3 {
			v.set(named(i), specNamed(i))
		}
		synctest.Wait()
		before := v.count
		v.mu.Lock()
		v.now = &service.NodeFacts{Name: "n1", Zone: "zb"}
		v.mu.Unlock()
		v.PostFacts()
		synctest.Wait()
		// The scaffold of this renderer does not change either, so all four
		// render and none repeats itself.
		if v.count != before {
			t.Fatalf("%d fragments repeated", v.count-before)
		}
	})
}

// TestDirectory_PostRacesWithLeave: a Service that is posted while its previous actor leaves is rendered.
func TestDirectory_PostRacesWithLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := build(t)
		for range 200 {
			v.set(web, spec())
			synctest.Wait()
			v.set(web, nil)
			synctest.Wait()
			gone := v.fragment(web)
			go v.PostAck(dataplane.Ack{Key: web, Domain: "one", Revision: gone.Revision})
			v.set(web, spec())
			synctest.Wait()
			if f := v.fragment(web); f.Gone {
				t.Fatalf("the Service exists, its fragment says %+v", f)
			}
		}
	})
}
