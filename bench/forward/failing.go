package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-proxy/sluice/bench/rig"
)

// How long a case takes: before the fault, the time in which connections count, and the time until an endpoint that
// answers again has to get one.
const (
	calm      = 5 * time.Second
	window    = 15 * time.Second
	againMax  = time.Minute
	lateAfter = time.Second / 2
	// patience is that of a client.
	patience = 5 * time.Second
)

// subject is a proxy in a mode. passive says that the Service has the annotation sluice.dev/outlier.
type subject struct {
	mode               string
	kubeProxy, passive bool
}

func (s subject) String() string {
	switch {
	case s.kubeProxy:
		return "kube-proxy, " + s.mode
	case s.passive:
		return "Sluice, " + s.mode + ", passive"
	default:
		return "Sluice, " + s.mode
	}
}

// subjectsOf returns the subjects of some modes.
func subjectsOf(modes []string) (all []subject) {
	for _, mode := range modes {
		if mode == "userspace" {
			all = append(all, subject{mode: mode})
			continue
		}
		all = append(all, subject{mode, true, false}, subject{mode, false, false}, subject{mode, false, true})
	}
	return all
}

// failing is the result of one case with one subject.
type failing struct {
	Subject, Fault string
	// Before are the connections before the fault, and During those that began in the window after it.
	Before, During counts
	// Lasted is the time from the fault to the last connection that failed or was late. Again is the time from the end of
	// the fault to the first connection that the endpoint got.
	Lasted, Again time.Duration
	// Ejections counts suspects.
	Ejections int
	// CPU is the time of the proxy's process during the window.
	CPU time.Duration
}

// counts are connections of a time. Slowest is the longest time to an answer.
type counts struct {
	Attempted, Failed, Late int
	Slowest                 time.Duration
}

// failingReport is what -output json prints.
type failingReport struct {
	Machine rig.Machine
	Results []failing
}

// compareFailing plays each fault with each subject.
func compareFailing(ctx context.Context, s settings) error {
	chosen, err := rig.Choose(s.faults, faultNames(), func(string) bool { return false })
	if err != nil {
		return fmt.Errorf("-faults: %w", err)
	}
	if s.kubeProxy != "" {
		if s.kubeProxy, err = filepath.Abs(s.kubeProxy); err != nil {
			return err
		}
	}
	report := failingReport{Machine: rig.ThisMachine(ctx)}
	for _, fault := range faults {
		if !slices.Contains(chosen, fault.name) {
			continue
		}
		for _, subject := range subjectsOf(strings.Split(s.modes, ",")) {
			if fault.harmless && !subject.passive || subject.kubeProxy && s.kubeProxy == "" {
				continue
			}
			one, err := play(ctx, s, subject, fault)
			if err != nil {
				return fmt.Errorf("%v: %s: %w", subject, fault.name, err)
			}
			report.Results = append(report.Results, one)
			rig.Progress("%v: %s: %+v", subject, fault.name, one)
		}
	}
	report.Machine.LoadAfter = rig.LoadAverage()
	return rig.Report(report, s.output, func(out io.Writer) error {
		m := report.Machine
		fmt.Fprintf(out, "%s, Linux %s, %d processors, load %s before and %s after, commit %s\n",
			m.Date, m.Kernel, m.Processors, m.LoadBefore, m.LoadAfter, m.Commit)
		return failingTable(report.Results).Print(out)
	})
}

// play measures one case.
func play(ctx context.Context, s settings, of subject, fault fault) (one failing, err error) {
	one = failing{Subject: of.String(), Fault: fault.name}
	err = rig.InFolder("failing", func(dir string) (err error) {
		st, err := newStage(ctx, s, of, dir)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, st.close()) }()
		load := st.startLoad(ctx)
		defer load.stop()
		if !rig.Sleep(ctx, calm) {
			return ctx.Err()
		}
		failed := time.Now()
		if err := st.suffer(ctx, fault, &one); err != nil {
			return err
		}
		if !fault.harmless {
			if one.Again, err = load.again(ctx, time.Now()); err != nil {
				return err
			}
		}
		load.stop()
		spared := netip.Addr{}
		if fault.spares {
			spared = st.sources[len(st.sources)-1]
		}
		one.Before, _ = load.count(failed.Add(-calm), failed, spared)
		one.During, one.Lasted = load.count(failed, failed.Add(window), spared)
		one.Ejections, err = st.ejections(ctx)
		return err
	})
	return one, err
}

// suffer lets the fault last until the connections that began in the window have ended.
func (s *stage) suffer(ctx context.Context, fault fault, one *failing) error {
	before, err := s.used()
	if err != nil {
		return err
	}
	end, err := fault.begin(s)
	if err != nil {
		return err
	}
	rig.Sleep(ctx, window)
	used, err := s.used()
	one.CPU = used - before
	rig.Sleep(ctx, patience)
	return errors.Join(err, ctx.Err(), end())
}

// failingTable prints the results.
func failingTable(all []failing) rig.Table {
	t := rig.Table{Head: []string{"", "fault", "connections", "failed", "late", "slowest", "for", "again after", "ejected", "CPU"}}
	for _, f := range all {
		lasted, again := "-", "-"
		if f.During.Failed+f.During.Late > 0 {
			lasted = rig.Round(f.Lasted)
		}
		if f.Again > 0 {
			again = rig.Round(f.Again)
		}
		t.Add(f.Subject, f.Fault, strconv.Itoa(f.During.Attempted), strconv.Itoa(f.During.Failed), strconv.Itoa(f.During.Late),
			rig.Round(f.During.Slowest), lasted, again, strconv.Itoa(f.Ejections), fmt.Sprintf("%.0f%%", 100*f.CPU.Seconds()/window.Seconds()))
	}
	return t
}
