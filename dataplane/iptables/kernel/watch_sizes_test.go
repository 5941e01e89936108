// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/iptables/render"
	"github.com/sluice-proxy/sluice/service"
)

// sizedTool knows the sizes of tables.
type sizedTool struct {
	scriptedTool
	entries map[render.Table]uint32
	// restored is called with each input.
	restored func() error
}

func (s *sizedTool) TableSize(table render.Table) (size, bool) {
	n, ok := s.entries[table]
	return size{entries: n, bytes: 100 * n}, ok
}

func (s *sizedTool) Restore(context.Context, []byte) error { return s.restored() }

// sizesTest is a writer with a sizedTool, and a running Watch.
type sizesTest struct {
	*testing.T
	*sizedTool
	writer  *Writer
	reports atomic.Int32
}

// withSizes runs a test while Watch runs, after a first audit.
func withSizes(t *testing.T, body func(w *sizesTest)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		tool := &sizedTool{entries: map[render.Table]uint32{render.Mangle: 8, render.Filter: 50, render.NAT: 500}, restored: func() error { return nil }}
		w := &sizesTest{T: t, sizedTool: tool, writer: NewWriter(service.IPv4, tool, WriterConfig{})}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- w.writer.Watch(ctx, func(dataplane.ForeignProcess) { w.reports.Add(1) }) }()
		w.audit()
		body(w)
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("Watch ended with %v", err)
		}
	})
}

func (w *sizesTest) audit() {
	w.Helper()
	if _, err := w.writer.Read(w.Context()); err != nil {
		w.Fatal(err)
	}
}

// expect lets time pass and counts the reports.
func (w *sizesTest) expect(what string, want int, within time.Duration) {
	w.Helper()
	w.reports.Store(0)
	time.Sleep(within)
	synctest.Wait()
	if got := int(w.reports.Load()); got != want {
		w.Errorf("%s: reported %d times, want %d", what, got, want)
	}
}

// stranger changes a table by some entries. It holds the turn with the tool, so that Watch waits.
func (w *sizesTest) stranger(table render.Table, by int) {
	w.Helper()
	if err := w.writer.acquire(w.Context()); err != nil {
		w.Fatal(err)
	}
	w.entries[table] += uint32(by)
	w.writer.release()
}

// writes changes nat by some entries.
func (w *sizesTest) writes(by int, changes ...dataplane.Change) dataplane.Receipt {
	w.restored = func() error {
		w.entries[render.NAT] += uint32(by)
		return nil
	}
	return w.writer.Write(w.Context(), &dataplane.Batch{Number: 1, Changes: changes})
}

// TestSizes_TellStrangersFromWrites: the watch of table sizes reports foreign changes, and none of our own writes.
func TestSizes_TellStrangersFromWrites(t *testing.T) {
	empty := chainObject(render.NAT, "KUBE-SVC-BLUEAAAAAAAAAAAA")
	full := chainObject(render.NAT, "KUBE-SVC-BLUEAAAAAAAAAAAA", "-j A", "-j B", "-j C")
	withSizes(t, func(w *sizesTest) {
		w.expect("quiet times", 0, time.Minute)
		w.stranger(render.Filter, -1)
		w.expect("a rule less", 1, time.Minute)
		w.stranger(render.Filter, 1)
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

		w.stranger(render.NAT, -1)
		w.writes(5, changeOf(blue, nil, full))
		w.expect("a rule less before our write", 1, time.Minute)
		w.writes(-3-1, changeOf(blue, full, empty))
		w.expect("a rule less during our write", 1, time.Minute)
		w.stranger(render.NAT, -1)
		w.audit()
		w.expect("a rule less that an audit has seen", 0, time.Minute)
	})
}

// TestSizes_TableMadeByOwnWrite: our write that creates a table causes no report, although the kernel adds its own
// entries. A deletion right after it does.
func TestSizes_TableMadeByOwnWrite(t *testing.T) {
	full := chainObject(render.NAT, "KUBE-SVC-BLUEAAAAAAAAAAAA", "-j A")
	withSizes(t, func(w *sizesTest) {
		w.stranger(render.NAT, -500)
		w.audit()
		w.writes(3+6, changeOf(blue, nil, full))
		w.expect("our first write", 0, time.Minute)
		w.stranger(render.NAT, -1)
		w.expect("a rule less after it", 1, time.Minute)
	})
}

// TestSizes_AfterFailedWrite: a failed write causes no report, and a foreign deletion during it does.
func TestSizes_AfterFailedWrite(t *testing.T) {
	full := chainObject(render.NAT, "KUBE-SVC-BLUEAAAAAAAAAAAA", "-j A")
	withSizes(t, func(w *sizesTest) {
		w.restored = func() error { return &ToolError{Outcome: dataplane.Rejected, Err: errors.New("exit status 1")} }
		w.writer.Write(w.Context(), &dataplane.Batch{Changes: []dataplane.Change{changeOf(blue, nil, full)}})
		w.expect("nothing landed", 0, time.Minute)
		w.restored = func() error {
			w.entries[render.NAT] -= 3
			return &ToolError{Outcome: dataplane.Rejected, Err: errors.New("exit status 1")}
		}
		w.writer.Write(w.Context(), &dataplane.Batch{Changes: []dataplane.Change{changeOf(blue, nil, full)}})
		w.expect("nothing landed, and a stranger deleted", 1, time.Minute)
	})
}

// TestSizes_BoundReads: another program that changes the tables all the time causes only a limited number of reads.
func TestSizes_BoundReads(t *testing.T) {
	withSizes(t, func(w *sizesTest) {
		w.stranger(render.NAT, 60_000) // which take 0.3 s to read
		w.audit()
		reads := 0
		for range 30 {
			w.reports.Store(0)
			w.stranger(render.Filter, 1)
			time.Sleep(time.Second)
			synctest.Wait()
			if w.reports.Load() > 0 {
				reads++
				w.audit()
			}
		}
		if reads < 7 || reads > 12 {
			t.Errorf("%d reads in 30 s of foreign changes, want about one in 3 s", reads)
		}
	})
}

// TestSizes_WaitWhileToolInUse: the sizes are not read while the tool is in use.
func TestSizes_WaitWhileToolInUse(t *testing.T) {
	withSizes(t, func(w *sizesTest) {
		if err := w.writer.acquire(w.Context()); err != nil {
			w.Fatal(err)
		}
		w.entries[render.NAT]--
		w.expect("a rule less while the tool is in use", 0, time.Minute)
		w.writer.release()
		w.expect("afterwards", 1, time.Minute)
	})
}
