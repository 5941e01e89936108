package iptables

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// scales is a tool that knows the sizes of tables.
type scales struct {
	scriptedTool
	entries map[Table]uint32
	// restored is done with each input.
	restored func() error
}

func (s *scales) TableSize(table Table) (size, bool) {
	n, ok := s.entries[table]
	return size{entries: n, bytes: 100 * n}, ok
}

func (s *scales) Restore(context.Context, []byte) error { return s.restored() }

// weighed is a writer with scales, which is watched.
type weighed struct {
	*testing.T
	*scales
	writer *Writer
	told   atomic.Int32
}

// onScales runs a test beside a watch, after a first audit.
func onScales(t *testing.T, body func(w *weighed)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		tool := &scales{entries: map[Table]uint32{Mangle: 8, Filter: 50, NAT: 500}, restored: func() error { return nil }}
		w := &weighed{T: t, scales: tool, writer: NewWriter(service.IPv4, tool, WriterConfig{})}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- w.writer.Watch(ctx, func(dataplane.Stranger) { w.told.Add(1) }) }()
		w.audit()
		body(w)
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("Watch ended with %v", err)
		}
	})
}

func (w *weighed) audit() {
	w.Helper()
	if _, err := w.writer.Read(w.Context()); err != nil {
		w.Fatal(err)
	}
}

// expect lets some time pass, and counts what is told meanwhile.
func (w *weighed) expect(what string, want int, within time.Duration) {
	w.Helper()
	w.told.Store(0)
	time.Sleep(within)
	synctest.Wait()
	if got := int(w.told.Load()); got != want {
		w.Errorf("%s: told %d times, want %d", what, got, want)
	}
}

// stranger changes a table by some entries. Taking a turn with the tool keeps the
// watch away meanwhile.
func (w *weighed) stranger(table Table, by int) {
	w.Helper()
	if err := w.writer.acquire(w.Context()); err != nil {
		w.Fatal(err)
	}
	w.entries[table] += uint32(by)
	w.writer.release()
}

// writes changes nat by some entries.
func (w *weighed) writes(by int, changes ...dataplane.Change) dataplane.Receipt {
	w.restored = func() error {
		w.entries[NAT] += uint32(by)
		return nil
	}
	return w.writer.Write(w.Context(), &dataplane.Batch{Number: 1, Changes: changes})
}

func TestSizesTellStrangersFromWrites(t *testing.T) {
	empty := chainObject(NAT, "KUBE-SVC-BLUEAAAAAAAAAAAA")
	full := chainObject(NAT, "KUBE-SVC-BLUEAAAAAAAAAAAA", "-j A", "-j B", "-j C")
	onScales(t, func(w *weighed) {
		w.expect("quiet times", 0, time.Minute)
		w.stranger(Filter, -1)
		w.expect("a rule less", 1, time.Minute)
		w.stranger(Filter, 1)
		w.expect("a rule more", 1, time.Minute)

		w.writes(5, changeOf(blue, nil, full))
		w.expect("our chain made", 0, time.Minute)
		w.writes(-3, changeOf(blue, full, empty))
		w.expect("our chain emptied", 0, time.Minute)
		w.writes(-2, changeOf(blue, empty, nil))
		w.expect("our chain deleted", 0, time.Minute)
		w.writes(277, unsure(changeOf(blue, nil, full)))
		w.expect("our chain written that may have been there", 0, time.Minute)
		w.writes(0, unsure(changeOf(blue, full, nil)))

		w.stranger(NAT, -1)
		w.writes(5, changeOf(blue, nil, full))
		w.expect("a rule less before our write", 1, time.Minute)
		w.writes(-3-1, changeOf(blue, full, empty))
		w.expect("a rule less during our write", 1, time.Minute)
		w.stranger(NAT, -1)
		w.audit()
		w.expect("a rule less that an audit has seen", 0, time.Minute)
	})
}

// TestSizesOfATableThatOurWriteHasMade: the kernel adds entries of its own to it, and
// watching it begins at once.
func TestSizesOfATableThatOurWriteHasMade(t *testing.T) {
	full := chainObject(NAT, "KUBE-SVC-BLUEAAAAAAAAAAAA", "-j A")
	onScales(t, func(w *weighed) {
		w.stranger(NAT, -500)
		w.audit()
		w.writes(3+6, changeOf(blue, nil, full))
		w.expect("our first write", 0, time.Minute)
		w.stranger(NAT, -1)
		w.expect("a rule less after it", 1, time.Minute)
	})
}

func TestSizesAfterAWriteThatFailed(t *testing.T) {
	full := chainObject(NAT, "KUBE-SVC-BLUEAAAAAAAAAAAA", "-j A")
	onScales(t, func(w *weighed) {
		w.restored = func() error { return &ToolError{Outcome: dataplane.Rejected, Err: errors.New("exit status 1")} }
		w.writer.Write(w.Context(), &dataplane.Batch{Changes: []dataplane.Change{changeOf(blue, nil, full)}})
		w.expect("nothing landed", 0, time.Minute)
		w.restored = func() error {
			w.entries[NAT] -= 3
			return &ToolError{Outcome: dataplane.Rejected, Err: errors.New("exit status 1")}
		}
		w.writer.Write(w.Context(), &dataplane.Batch{Changes: []dataplane.Change{changeOf(blue, nil, full)}})
		w.expect("nothing landed, and a stranger deleted", 1, time.Minute)
	})
}

// TestSizesBoundReads: who changes the tables all the time, beside us, does not make us
// read them all the time.
func TestSizesBoundReads(t *testing.T) {
	onScales(t, func(w *weighed) {
		w.stranger(NAT, 60_000) // which take 0.3 s to read
		w.audit()
		reads := 0
		for range 30 {
			w.told.Store(0)
			w.stranger(Filter, 1)
			time.Sleep(time.Second)
			synctest.Wait()
			if w.told.Load() > 0 {
				reads++
				w.audit()
			}
		}
		if reads < 7 || reads > 12 {
			t.Errorf("%d reads in 30 s of foreign changes, want about one in 3 s", reads)
		}
	})
}
