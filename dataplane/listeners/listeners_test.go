// SPDX-License-Identifier: Apache-2.0

package listeners

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/relay"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/writertest"
)

// TestPlace_RoundTrip: Place reads the identity of a listener back, and rejects other names.
func TestPlace_RoundTrip(t *testing.T) {
	for _, p := range []relay.Place{place(80), {Protocol: service.UDP, At: netip.MustParseAddrPort("[::1]:30053")}} {
		if got, err := Place(ID(p)); err != nil || got != p {
			t.Errorf("%v is read back as %v, %v", ID(p), got, err)
		}
	}
	for _, name := range []string{"", "tcp", "tcp/", "tcp/127.0.0.1", "sctp/127.0.0.1:80", "tcp/localhost:80", "udp/:80"} {
		if got, err := Place(dataplane.ID{Container: Container, Name: name}); err == nil {
			t.Errorf("name %q is read as %v", name, got)
		}
	}
	if got, err := Place(dataplane.ID{Container: "address", Name: "tcp/127.0.0.1:80"}); err == nil {
		t.Errorf("an object of another container is read as %v", got)
	}
}

// fake is a listener without a socket, whose content is the body it was written from.
type fake struct {
	content       string
	dead, retired bool
	died          func()
	changes       error
}

func (f *fake) Alive() bool       { return !f.dead && !f.retired }
func (f *fake) Start(died func()) { f.died = died }
func (f *fake) Retire()           { f.retired = true }
func (f *fake) Change(content string) error {
	f.content = content
	return f.changes
}

// world is a set of fakes.
type world struct {
	*testing.T
	*Set[string]
	// opened are the listeners by place, the latest of each, and fails what opening one returns.
	opened map[relay.Place]*fake
	fails  map[relay.Place]error
}

func newWorld(t *testing.T) *world {
	w := &world{T: t, opened: make(map[relay.Place]*fake), fails: make(map[relay.Place]error)}
	r := relay.New(relay.Config{})
	t.Cleanup(r.Close)
	parse := func(_ relay.Place, body string) (string, error) {
		if body == "nonsense" {
			return "", errors.New("cannot read this")
		}
		return body, nil
	}
	w.Set = New(r, parse, func(p relay.Place, content string) (Listener[string], error) {
		if err := w.fails[p]; err != nil {
			return nil, err
		}
		w.opened[p] = &fake{content: content}
		return w.opened[p], nil
	})
	return w
}

func place(port uint16) relay.Place {
	return relay.Place{Protocol: service.TCP, At: netip.AddrPortFrom(netip.MustParseAddr("192.0.2.10"), port)}
}

// want is a change of a Service that is named by its port.
func want(port uint16, body string) dataplane.Change {
	id := ID(place(port))
	return dataplane.Change{ID: id, After: &dataplane.Object{ID: id, Kind: dataplane.Element, Body: body}, Owner: owner(port)}
}

func gone(port uint16) dataplane.Change {
	return dataplane.Change{ID: ID(place(port)), Owner: owner(port)}
}

func owner(port uint16) service.Key { return service.Key{Namespace: "ns1", Name: place(port).String()} }

// write expects an outcome with these suspects, and that the set has these bodies afterwards.
func (w *world) write(outcome dataplane.Outcome, suspects []service.Key, has map[uint16]string, changes ...dataplane.Change) dataplane.Receipt {
	w.Helper()
	r := writertest.Attempt(w, dataplane.Writer{Write: w.Write, Read: w.Read}, changes...)
	if r.Outcome != outcome || !slices.Equal(r.Suspects, suspects) || r.Proven != (len(suspects) > 0) {
		w.Errorf("got %v, suspects %v; want %v, %v", r, r.Suspects, outcome, suspects)
	}
	w.expect(has)
	return r
}

// expect wants listeners with these bodies and no others.
func (w *world) expect(has map[uint16]string) {
	w.Helper()
	there, err := w.Read(w.Context())
	if err != nil || len(there) != len(has) {
		w.Errorf("there are %v, %v; want %v", there, err, has)
	}
	for port, body := range has {
		if o := w.Object(ID(place(port))); o == nil || o.Body != body {
			w.Errorf("port %d: %v, want %q", port, o, body)
		}
	}
}

// TestSet_ListenersComeChangeAndGo: a write opens, changes and removes listeners, and a changed listener stays open.
func TestSet_ListenersComeChangeAndGo(t *testing.T) {
	w := newWorld(t)
	w.write(dataplane.Landed, nil, map[uint16]string{80: "a", 81: "a"}, want(80, "a"), want(81, "a"))
	first := w.opened[place(80)]
	w.write(dataplane.Landed, nil, map[uint16]string{80: "b"}, want(80, "b"), gone(81))
	if w.opened[place(80)] != first || first.content != "b" || first.died == nil || !w.opened[place(81)].retired {
		t.Errorf("%+v, %+v", first, w.opened[place(81)])
	}
}

// TestSet_RejectedListenersAlone: listeners that cannot be read, opened or changed are rejected alone, and every other
// change of the batch lands.
func TestSet_RejectedListenersAlone(t *testing.T) {
	w := newWorld(t)
	w.write(dataplane.Landed, nil, map[uint16]string{80: "a"}, want(80, "a"))
	w.opened[place(80)].changes = unix.EPERM
	w.fails[place(81)] = unix.EADDRINUSE
	w.write(dataplane.Rejected, []service.Key{owner(81), owner(82), owner(80)}, map[uint16]string{80: "a", 83: "a"},
		want(80, "b"), want(81, "a"), want(82, "nonsense"), want(83, "a"))
	w.opened[place(80)].changes = nil
	w.write(dataplane.Landed, nil, map[uint16]string{80: "a", 83: "a"}, want(80, "a"))
	if got := w.opened[place(80)].content; got != "a" {
		t.Errorf("a listener that could not be changed to b keeps %q, want a", got)
	}
}

// TestSet_HostsFaultHasNoSuspect: a listener that fails through the host's fault makes the write busy without a
// suspect, and does not keep another listener of the batch from being opened.
func TestSet_HostsFaultHasNoSuspect(t *testing.T) {
	w := newWorld(t)
	w.fails[place(80)] = unix.EMFILE
	r := w.write(dataplane.Busy, nil, map[uint16]string{81: "a"}, want(80, "a"), want(81, "a"))
	if !errors.Is(r.Err, unix.EMFILE) {
		t.Errorf("got %v", r.Err)
	}
}

// TestSet_EndedContextOpensNothing: a write whose context ended opens no listener.
func TestSet_EndedContextOpensNothing(t *testing.T) {
	w := newWorld(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := w.Write(ctx, &dataplane.Batch{Changes: []dataplane.Change{want(80, "a")}})
	if there, certain := r.Certain[ID(place(80))]; r.Outcome != dataplane.Unknown || !errors.Is(r.Err, context.Canceled) || !certain || there != nil {
		t.Errorf("got %v, certain %v", r, r.Certain)
	}
	if _, err := w.Read(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("a read without time says %v", err)
	}
	w.expect(nil)
}

// TestSet_DeadListenersReopened: dead listeners are reported by Watch, with a pause in between, and reopened by the
// next write.
func TestSet_DeadListenersReopened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.write(dataplane.Landed, nil, map[uint16]string{80: "a"}, want(80, "a"))
		var told []time.Duration
		began := time.Now()
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			ended <- w.Watch(ctx, func(dataplane.ForeignProcess) { told = append(told, time.Since(began)) })
		}()
		for range 2 {
			l := w.opened[place(80)]
			l.dead = true
			l.died()
			synctest.Wait()
			w.expect(nil)
			w.write(dataplane.Landed, nil, map[uint16]string{80: "a"}, want(80, "a"))
			if !l.retired {
				t.Error("the dead listener was not retired")
			}
		}
		time.Sleep(time.Minute)
		stop()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("the watch ended with %v", err)
		}
		if !slices.Equal(told, []time.Duration{0, healPause}) {
			t.Errorf("told after %v", told)
		}
	})
}
