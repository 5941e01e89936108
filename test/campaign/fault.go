// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/netnstest"
	"github.com/sluice-proxy/sluice/test/process"
)

// fault is one kind of thing that goes wrong around the proxy.
type fault struct {
	name string
	// fits reports whether the kind exists for a backend; nil means for each.
	fits func(mode string) bool
	// begin prepares all instants, and end undoes that. Either may be nil.
	begin func(context.Context, *trial) error
	end   func(*trial) error
	// instant is one occurrence. Afterwards the proxy runs, and everything is applied.
	instant func(ctx context.Context, r *trial, number int) error
}

// faults are all kinds, in the order in which "all" performs them.
var faults = []fault{
	{name: "kill", instant: kill, end: (*trial).revive},
	{name: "stop", fits: notIPVS, instant: stop},
	{name: "disk", fits: notIPVS, instant: disk},
	{name: "descriptors", fits: notIPVS, instant: descriptors},
	{name: "memory", fits: notIPVS, begin: limitMemory, instant: memory, end: (*trial).freeMemory},
	{name: "lock", fits: notIPVS, instant: lock},
	{name: "takeover", fits: notIPVS, instant: takeover},
	{name: "tenant", fits: notIPVS, instant: tenant},
	{name: "astray", fits: notIPVS, begin: beginAstray, instant: astray, end: (*trial).endAstray},
	{name: "offload", fits: withOffload, begin: beginOffload, instant: offload, end: (*trial).endOffload},
}

// nftablesOffload is the mode of a campaign with -offload.
const nftablesOffload = "nftables with offload"

func withOffload(mode string) bool { return mode == nftablesOffload }

func notIPVS(mode string) bool { return mode != "ipvs" }

// faultsNamed returns the kinds in a list of names with commas.
func faultsNamed(list, mode string, offload bool) (found []fault, err error) {
	if offload {
		mode = nftablesOffload
	}
	for name := range strings.SplitSeq(list, ",") {
		i := slices.IndexFunc(faults, func(t fault) bool { return t.name == name })
		switch {
		case name == "all":
			found = append(found, faults...)
		case i < 0:
			return nil, fmt.Errorf("-fault %q: want all, or some of kill, stop, disk, descriptors, memory, lock, takeover, tenant, astray and offload with commas", name)
		default:
			found = append(found, faults[i])
		}
	}
	found = slices.DeleteFunc(found, func(t fault) bool { return t.fits != nil && !t.fits(mode) })
	if len(found) == 0 {
		return nil, fmt.Errorf("-fault %s: nothing of that for -mode %s", list, mode)
	}
	return found, nil
}

// trial is what the faults share. One goroutine uses it.
type trial struct {
	*options
	net   *network
	c     *cluster
	p     *proxies
	t     *traffic
	group *memoryGroup
	// recorder exists in IPVS mode.
	recorder *recorder
	// rows are the results by kind; row is the one of the kind under way.
	rows []*row
	row  *row
	// offloading exists during the fault of this name.
	offloading *offloading
	// straying exists during the fault astray.
	straying *straying
	// killed is what the next start has to bring into force, if the proxy has been killed.
	killed killed
	// startup is how long the last start took, which spreads the instants over it.
	startup time.Duration
	// failed has the attacks of a tenant that cost the others more than the limits.
	failed []error
}

// row is a row of the table.
type row struct {
	kind           string
	instants       int
	ready, applied time.Duration
	// worst is how long a client was astray at most.
	worst   time.Duration
	details map[string]int
	notes   []string
}

func (r *row) count(detail string) { r.details[detail]++ }

func (r *row) note(format string, args ...any) {
	r.notes = append(r.notes, fmt.Sprintf(format, args...))
}

// play performs the kinds one after the other while endpoints change.
func (r *trial) play(ctx context.Context, kinds []fault) (err error) {
	if r.mode == "ipvs" {
		r.recorder = newRecorder(r.p.Namespace, r.dir)
		r.t.tell(r.recorder.lost)
		watching, enough := context.WithCancel(ctx)
		watched := make(chan error, 1)
		go func() { watched <- r.recorder.watch(watching) }()
		defer func() { enough(); err = errors.Join(err, <-watched) }()
	}
	if !r.control {
		if err := r.p.again((*process.Daemon).Stop, 1); err != nil {
			return err
		}
		if err := r.recovered(ctx, time.Now(), r.c.mark(), false); err != nil {
			return err
		}
		// Processes that live for a second may not get that far.
		if err := r.said(ctx, "Service quarantined"); err != nil {
			return err
		}
	}
	changing, enough := context.WithCancel(ctx)
	changed := make(chan int, 1)
	go func() { changed <- r.keepChanging(changing) }()
	began := time.Now()
	defer func() {
		enough()
		took := time.Since(began)
		fmt.Printf("%.1f changes/s over %v\n", float64(<-changed)/took.Seconds(), took.Round(time.Second))
	}()
	for _, kind := range kinds {
		r.row = &row{kind: kind.name, details: map[string]int{}}
		r.rows = append(r.rows, r.row)
		if err := r.perform(ctx, kind); err != nil {
			return fmt.Errorf("%s, instant %d: %w", kind.name, r.row.instants, err)
		}
	}
	return nil
}

// perform performs one kind.
func (r *trial) perform(ctx context.Context, kind fault) (err error) {
	const progress = 10 * time.Second
	r.t.after(kind.name)
	if kind.end != nil {
		defer func() { err = errors.Join(err, kind.end(r)) }()
	}
	if kind.begin != nil {
		if err := kind.begin(ctx, r); err != nil {
			return err
		}
	}
	began, said := time.Now(), time.Now()
	for i := range r.instants {
		if time.Since(began) > r.longest {
			r.row.note("ended after %v", r.longest)
			break
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		r.row.instants++
		if err := kind.instant(ctx, r, i); err != nil {
			return err
		}
		if time.Since(said) > progress {
			said = time.Now()
			_, judged := r.t.snapshot()
			fmt.Printf("%8v  %s: %d of %d instants; %d attempted, %d lost, %d late\n", time.Since(began).Round(time.Second),
				kind.name, r.row.instants, r.instants, judged.attempted, judged.lost, judged.late)
		}
	}
	return nil
}

// keepChanging changes endpoints at the rate of the options, and returns how many times it did.
func (r *trial) keepChanging(ctx context.Context) (changes int) {
	tick := time.NewTicker(r.change)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return changes
		case <-tick.C:
			r.c.change()
			changes++
		}
	}
}

// recovered waits until the proxy is ready, and until the marker shows its new endpoint in both
// families. It notes how long either took from a moment: the start of the process, or the end of
// what held it up.
func (r *trial) recovered(ctx context.Context, from time.Time, want string, started bool) error {
	const interval = 5 * time.Millisecond
	ctx, cancel := context.WithDeadline(ctx, time.Now().Add(r.recovery))
	defer cancel()
	for started {
		ready, err := r.p.ready()
		if err != nil {
			return err
		}
		if ready {
			r.startup = time.Since(from)
			r.notice(r.startup, 0)
			break
		}
		if ctx.Err() != nil {
			return fmt.Errorf("not ready %v after its start; the end of %s:\n%s", r.recovery, r.p.Process().LogFile(), r.p.Process().Tail(10))
		}
		time.Sleep(interval)
	}
	if err := r.shown(ctx, want); err != nil {
		return fmt.Errorf("a change is not applied: %w; the end of %s:\n%s", err, r.p.Process().LogFile(), r.p.Process().Tail(10))
	}
	r.notice(0, time.Since(from))
	return nil
}

func (r *trial) notice(ready, applied time.Duration) {
	if r.row != nil {
		r.row.ready, r.row.applied = max(r.row.ready, ready), max(r.row.applied, applied)
	}
}

// shown waits until the marker's only endpoint in both families is the one that the API names.
func (r *trial) shown(ctx context.Context, want string) error {
	const interval = 10 * time.Millisecond
	for _, family := range service.Families {
		to := target{r.c.roles().marker, "tcp", clusterAddr(family, r.c.roles().marker, webPort)}
		for {
			asking, stop := context.WithTimeout(ctx, r.t.question())
			answer, err := netnstest.Ask(asking, r.t.client, to.protocol, to.addr)
			stop()
			if err == nil && answer.Backend == want {
				break
			}
			if dead := r.p.Alive(); dead != nil {
				return dead
			}
			select {
			case <-ctx.Done():
				if err == nil {
					err = fmt.Errorf("%s answers", answer.Backend)
				}
				return fmt.Errorf("%v is to reach %s: %w", to, want, err)
			case <-time.After(interval):
			}
		}
	}
	return nil
}

// said waits until the log of the process has a text.
func (r *trial) said(ctx context.Context, text string) error {
	ctx, cancel := context.WithTimeout(ctx, r.recovery)
	defer cancel()
	return r.p.AwaitLog(ctx, text)
}

// signal sends a signal to the proxy.
func (r *trial) signal(s unix.Signal) error { return r.p.Process().Signal(s) }

// table prints a row per kind, and what its instants were.
func (r *trial) table() {
	const head, line = "\n%-12s %9s %10s %10s %6s %10s %8s %10s %10s\n", "%-12s %9d %10d %10d %6d %10d %8d %10v %10v\n"
	fmt.Printf(head, "kind", "instants", "new", "held", "lost", "destroyed", "late", "ready", "applied")
	r.t.mu.Lock()
	defer r.t.mu.Unlock()
	for _, row := range r.rows {
		by := r.t.byAct[row.kind]
		if by == nil {
			by = &[kinds]count{}
		}
		fresh, held := by[newTCP], by[lineOfSession]
		fresh.add(by[questionUDP])
		fmt.Printf(line, row.kind, row.instants, fresh.attempted, held.attempted, fresh.lost+held.lost, by[destroyed].lost,
			fresh.late+held.late, row.ready.Round(time.Millisecond), row.applied.Round(time.Millisecond))
	}
	fmt.Println("\nnew: connections and questions attempted; held: lines on long-lived sessions; ready and applied: longest times")
	for _, row := range r.rows {
		for _, detail := range slices.Sorted(maps.Keys(row.details)) {
			fmt.Printf("%-12s %9d %s\n", row.kind, row.details[detail], detail)
		}
		for _, note := range row.notes {
			fmt.Printf("%-12s %s\n", row.kind, note)
		}
	}
	for _, sample := range r.t.samples {
		fmt.Println(sample)
	}
}
