// SPDX-License-Identifier: Apache-2.0

package kernel_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/nftables/kernel"
	"github.com/sluice-proxy/sluice/dataplane/nftables/render"
	"github.com/sluice-proxy/sluice/internal/netlink"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/testenv"
)

// broken returns an element that every kernel rejects: the end of a range, in a set without
// ranges.
func broken(objects []dataplane.Object, container string) {
	for i := range objects {
		if objects[i].ID.Container == container {
			objects[i].Body += string(netlink.AppendUint32(nil, unix.NFTA_SET_ELEM_FLAGS, unix.NFT_SET_ELEM_INTERVAL_END))
			return
		}
	}
}

// TestWriter_OneBadElementAmongMany: the receipt names the one Service of a thousand whose element is rejected, and
// reports every object as absent.
func TestWriter_OneBadElementAmongMany(t *testing.T) {
	w := newWorld(t, service.IPv4, kernel.WriterConfig{})
	w.commit()
	const bad = 617
	for n := range 1000 {
		view := plain(n, 3, 0)
		objects := w.renderer.Service(context.Background(), view, &w.facts)
		if n == bad {
			broken(objects, "@"+render.SetName("frontends"))
		}
		w.want(view.Key, objects)
	}
	batch := w.ledger.Plan()
	receipt := w.writer.Write(t.Context(), batch)
	if receipt.Outcome != dataplane.Rejected || !errors.Is(receipt.Err, unix.EINVAL) {
		t.Fatalf("got %v, want a rejection with the kernel's reason", receipt)
	}
	if want := []service.Key{plain(bad, 1, 0).Key}; !slices.Equal(receipt.Suspects, want) {
		t.Errorf("suspects %v, want %v", receipt.Suspects, want)
	}
	if want := "element 172.16.2.105 . tcp . 80 of @" + render.SetName("frontends") + " (of ns/svc617): "; !strings.Contains(receipt.Err.Error(), want) {
		t.Errorf("%v does not name the element and the Service: %s", receipt.Err, want)
	}
	for i := range batch.Changes {
		if object, certain := receipt.Certain[batch.Changes[i].ID]; !certain || object != nil {
			t.Fatalf("%v: certain %t, %v; want certainly absent", batch.Changes[i].ID, certain, object)
		}
	}
	w.ledger.Settle(batch, receipt)
	w.serve(plain(bad, 3, 0))
	w.commit()
	if drift := w.audit(); drift.Any() {
		t.Errorf("after the good batch: %+v", drift)
	}
}

// TestWriter_LargeBatchIsDivided: each transaction of a divided batch leaves complete Services, the needed ones first,
// and no part of a Service is reachable before all of it.
func TestWriter_LargeBatchIsDivided(t *testing.T) {
	var reports []int
	var w *world
	config := kernel.WriterConfig{TransactionBytes: 16 << 10, Progress: func(landed, all int) {
		reports = append(reports, landed)
		checkWholeServices(t, w.look(), 4)
	}}
	w = newWorld(t, service.IPv4, config)
	for n := range 400 {
		w.serve(plain(n, 4, 0))
	}
	first := plain(400, 4, 0)
	first.Key = service.Key{Namespace: "default", Name: "kubernetes"}
	w.serve(first)
	receipt := w.commit()
	if len(reports) < 5 || receipt.Written.Calls != len(reports) {
		t.Errorf("%d transactions and %d reports, want several of both", receipt.Written.Calls, len(reports))
	}
	if !slices.IsSorted(reports) || reports[len(reports)-1] != receipt.Written.Objects {
		t.Errorf("progress went %v of %d", reports, receipt.Written.Objects)
	}
	if drift := w.audit(); drift.Any() {
		t.Errorf("after all transactions: %+v", drift)
	}
}

// checkWholeServices fails unless every dispatched frontend has all its slots.
func checkWholeServices(t *testing.T, objects []dataplane.Object, endpoints int) {
	t.Helper()
	const frontendBytes = 12
	slots := make(map[string]int)
	for _, o := range objects {
		if strings.HasPrefix(o.ID.Container, "@cluster-endpoints-") {
			slots[o.ID.Name[:frontendBytes]]++
		}
	}
	frontends := 0
	for _, o := range objects {
		if o.ID.Container == "@"+render.SetName("frontends") {
			frontends++
			if slots[o.ID.Name] != endpoints {
				t.Errorf("a frontend is dispatched with %d of %d endpoints", slots[o.ID.Name], endpoints)
			}
		}
	}
	if frontends == 0 && len(slots) > 0 {
		t.Errorf("%d frontends have endpoints and none is dispatched", len(slots))
	}
}

// TestWriter_RejectionHalfway: after a rejection, the transactions of a divided batch that landed are certainly
// present, and the rest is certainly absent.
func TestWriter_RejectionHalfway(t *testing.T) {
	w := newWorld(t, service.IPv4, kernel.WriterConfig{TransactionBytes: 16 << 10})
	for n := range 400 {
		view := plain(n, 4, 0)
		objects := w.renderer.Service(context.Background(), view, &w.facts)
		if n == 300 {
			broken(objects, "@"+render.SetName("frontends"))
		}
		w.want(view.Key, objects)
	}
	batch := w.ledger.Plan()
	receipt := w.writer.Write(t.Context(), batch)
	if receipt.Outcome != dataplane.Rejected {
		t.Fatalf("got %v, want a rejection", receipt)
	}
	there := make(map[dataplane.ID]*dataplane.Object)
	for _, o := range w.read() {
		there[o.ID] = &o
	}
	landed := 0
	for i := range batch.Changes {
		c := &batch.Changes[i]
		said, certain := receipt.Certain[c.ID]
		if !certain || !dataplane.Same(said, there[c.ID]) {
			t.Fatalf("%v: certain %t, reported %v, exists %v", c.ID, certain, said, there[c.ID])
		}
		if said != nil {
			landed++
		}
	}
	if landed == 0 || landed == len(batch.Changes) {
		t.Errorf("%d of %d changes landed, want a part", landed, len(batch.Changes))
	}
}

// TestWriter_TimeUpBetweenTransactions: when time is up between two transactions, the receipt reports the later changes
// as not made.
func TestWriter_TimeUpBetweenTransactions(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	outOfTime := errors.New("out of time")
	w := newWorld(t, service.IPv4, kernel.WriterConfig{
		TransactionBytes: 16 << 10, Progress: func(landed, _ int) {
			if landed > 200 {
				cancel(outOfTime)
			}
		},
	})
	for n := range 400 {
		w.serve(plain(n, 4, 0))
	}
	batch := w.ledger.Plan()
	receipt := w.writer.Write(ctx, batch)
	if receipt.Outcome != dataplane.Unknown || !errors.Is(receipt.Err, outOfTime) {
		t.Fatalf("got %v, want unknown for want of time", receipt)
	}
	w.ledger.Settle(batch, receipt)
	w.commit()
	if drift := w.audit(); drift.Any() {
		t.Errorf("after the second attempt: %+v", drift)
	}
}

// TestWriter_UnsureObjectsAlwaysWritten: objects of unknown state are written whether the kernel has them, lacks them
// or has different ones.
func TestWriter_UnsureObjectsAlwaysWritten(t *testing.T) {
	w := newWorld(t, service.IPv4, kernel.WriterConfig{})
	for n := range 20 {
		w.serve(plain(n, 3, 0))
	}
	w.commit()
	everything := &dataplane.Batch{}
	for _, o := range w.read() {
		everything.Changes = append(everything.Changes, dataplane.Change{ID: o.ID})
	}
	w.nft(`delete element ip kube-proxy ${frontends} { 172.16.0.3 . tcp . 80, 172.16.0.4 . tcp . 80 }
		add element ip kube-proxy ${frontends} { 172.16.0.4 . tcp . 80 : goto reject-chain }
		flush chain ip kube-proxy services`, "-f", "-")
	w.ledger.Settle(everything, dataplane.Receipt{Outcome: dataplane.Unknown})
	w.commit()
	if drift := w.audit(); drift.Any() {
		t.Errorf("after writing what was in doubt: %+v", drift)
	}
}

// TestWriter_ForeignDeletionBlamesNoService: a batch that builds on objects that another program deleted blames no
// Service and requests an audit, after which the kernel has what is wanted.
func TestWriter_ForeignDeletionBlamesNoService(t *testing.T) {
	for name, deletion := range map[string]string{
		"everything": "flush ruleset",
		"a chain":    "flush map ip kube-proxy ${frontends}; flush chain ip kube-proxy cluster-4c; delete chain ip kube-proxy cluster-4c",
		"an element": "delete element ip kube-proxy ${frontends} { 172.16.0.1 . tcp . 80 }",
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, service.IPv4, kernel.WriterConfig{})
			for n := range 3 {
				w.serve(plain(n, 3, 0))
			}
			w.commit()
			w.nft(strings.ReplaceAll(deletion, "cluster-4c", chainOf(w)), "-f", "-")
			for n := range 3 {
				w.want(plain(n, 3, 0).Key, nil)
			}
			for n := 2; n < 40; n++ {
				w.serve(plain(n, 4, 1))
			}
			batch := w.ledger.Plan()
			receipt := w.writer.Write(t.Context(), batch)
			if receipt.Outcome != dataplane.Unknown || len(receipt.Suspects) > 0 {
				t.Fatalf("got %v with suspects %v, want unknown with none", receipt, receipt.Suspects)
			}
			w.ledger.Settle(batch, receipt)
			w.audit()
			w.commit()
			if drift := w.audit(); drift.Any() {
				t.Errorf("after an audit and a write: %+v", drift)
			}
		})
	}
}

// chainOf returns the class chain that the first Service's frontend leads to.
func chainOf(w *world) string {
	listed := w.nft("", "get", "element", w.table(), "${frontends}", "{", "172.16.0.0", ".", "tcp", ".", "80", "}")
	_, after, _ := strings.Cut(listed, "goto ")
	return strings.Fields(after)[0]
}

// TestWriter_ChangeCostsWhatItChanges: the cost of replacing one endpoint depends neither on the number of Services nor
// on the number of the Service's endpoints.
func TestWriter_ChangeCostsWhatItChanges(t *testing.T) {
	type size struct{ services, endpoints int }
	cost := make(map[size][]dataplane.Written)
	for _, s := range []size{{100, 10}, {1000, 10}, {1, 10}, {1, 5000}} {
		w := newWorld(t, service.IPv4, kernel.WriterConfig{})
		for n := range s.services {
			w.serve(plain(n, s.endpoints, 0))
		}
		w.commit()
		for i := range 20 {
			w.serve(plain(0, s.endpoints, i+1))
			written := w.commit().Written
			cost[s] = append(cost[s], written)
		}
	}
	for i := range 20 {
		if few, many := cost[size{100, 10}][i], cost[size{1000, 10}][i]; few != many {
			t.Errorf("replacement %d: %+v among 100 Services, %+v among 1,000", i, few, many)
		}
	}
	mean := func(s size) float64 {
		total := 0
		for _, w := range cost[s] {
			total += w.Objects
		}
		return float64(total) / float64(len(cost[s]))
	}
	t.Logf("objects written for one endpoint replaced: %.1f of 10, %.1f of 5,000", mean(size{1, 10}), mean(size{1, 5000}))
	if got := mean(size{1, 5000}); got > 8 {
		t.Errorf("one endpoint of 5,000 replaced: %.1f objects written", got)
	}
}

// TestWriter_WideServices: Services with many ports, source ranges or endpoints load, and one change of them remains
// small.
func TestWriter_WideServices(t *testing.T) {
	for name, widen := range map[string]struct {
		view   func(step int) *service.View
		oneMax int
	}{
		"500 ports":         {func(step int) *service.View { return manyPorts(500, step) }, 10},
		"200 source ranges": {func(step int) *service.View { return manyRanges(200, step) }, 10},
		"5,000 endpoints":   {func(step int) *service.View { return plain(0, 5000, step) }, 24},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, service.IPv4, kernel.WriterConfig{})
			w.serve(widen.view(0))
			w.commit()
			w.serve(widen.view(1))
			if receipt := w.commit(); receipt.Written.Objects == 0 || receipt.Written.Objects > widen.oneMax {
				t.Errorf("one change writes %d objects, want 1 to %d", receipt.Written.Objects, widen.oneMax)
			}
			if drift := w.audit(); drift.Any() {
				t.Errorf("read back: %+v", drift)
			}
			w.nft("", "list", "table", w.table())
		})
	}
}

// manyPorts also has node ports. The endpoint of one port depends on step.
func manyPorts(count, step int) *service.View {
	view := plain(0, 2, 0)
	first := view.Ports[service.IPv4][0]
	view.Ports[service.IPv4] = nil
	for i := range count {
		port := first
		port.Name, port.Port, port.NodePort = fmt.Sprint("p", i), uint16(1000+i), uint16(30000+i)
		if i == 7 {
			port.Cluster = plain(0, 2, step).Ports[service.IPv4][0].Cluster
		}
		view.Ports[service.IPv4] = append(view.Ports[service.IPv4], port)
	}
	return view
}

// manyRanges allows one range more at each step.
func manyRanges(count, step int) *service.View {
	view := plain(0, 2, 0)
	port := &view.Ports[service.IPv4][0]
	port.LoadBalancerVIPs = append(port.LoadBalancerVIPs, port.ClusterIP.Next())
	for i := range count + step {
		port.SourceRanges = append(port.SourceRanges, netip.PrefixFrom(netip.AddrFrom4([4]byte{198, byte(i), 0, 0}), 16+i%12))
	}
	return view
}

// TestWatch_HearsOnlyStrangers: Watch reports another program's change within 100 ms, and neither our own changes nor
// those of other tables.
func TestWatch_HearsOnlyStrangers(t *testing.T) {
	for _, family := range service.Families {
		t.Run(family.String(), func(t *testing.T) {
			w := newWorld(t, family, kernel.WriterConfig{})
			w.commit()
			heard, strangers := make(chan time.Time, 1000), make(chan dataplane.ForeignProcess, 1000)
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() {
				ended <- w.writer.Watch(ctx, func(by dataplane.ForeignProcess) { strangers <- by; heard <- time.Now() })
			}()
			w.watched(heard)
			w.nft("add table inet other; add chain inet other c; delete table inet other", "-f", "-")
			w.audit()
			w.commit()
			w.hearsNothing(heard)
			for _, change := range []string{
				"flush chain " + w.table() + " services",
				"add chain " + w.table() + " stray",
				"add element " + w.table() + " ${active-cluster-ips} { " + anyAddr(family) + " }",
				"delete table " + w.table(),
				"flush ruleset",
			} {
				w.hears(heard, change)
				w.audit()
				w.commit()
				if drift := w.audit(); drift.Any() {
					t.Errorf("after %q was repaired: %+v", change, drift)
				}
			}
			w.hearsNothing(heard)
			for len(strangers) > 0 {
				if by := <-strangers; by.Command != "nft" || by.PID == 0 {
					t.Errorf("changed by %+v, want the process nft", by)
				}
			}
			cancel()
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Errorf("Watch ended with %v", err)
			}
		})
	}
}

func anyAddr(family service.Family) string {
	if family == service.IPv6 {
		return "fd00::99"
	}
	return "192.0.2.99"
}

// watched waits until Watch listens, which it tests with a change that undoes itself.
func (w *world) watched(heard chan time.Time) {
	w.Helper()
	for began := time.Now(); time.Since(began) < testenv.Patience; {
		w.nft("add chain "+w.table()+" passing; delete chain "+w.table()+" passing", "-f", "-")
		select {
		case <-heard:
			return
		case <-time.After(100 * time.Millisecond):
		}
	}
	w.Fatal("nothing was heard")
}

// hears makes a change and checks that Watch reports it.
func (w *world) hears(heard chan time.Time, change string) {
	w.Helper()
	for len(heard) > 0 {
		<-heard
	}
	w.nft(change, "-f", "-")
	select {
	case <-heard:
	case <-time.After(testenv.Patience):
		w.Fatalf("%q was not heard", change)
	}
}

func (w *world) hearsNothing(heard chan time.Time) {
	w.Helper()
	for len(heard) > 0 {
		<-heard
	}
	w.serve(plain(1, 5, 0))
	w.commit()
	select {
	case <-heard:
		w.Error("what nobody else did to our table was heard")
	case <-time.After(50 * time.Millisecond):
	}
}
