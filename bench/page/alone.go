package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/sluice-proxy/sluice/bench/result"
	"github.com/sluice-proxy/sluice/bench/rig"
)

// The page shows these parts of the output of bench/reaction and bench/packets.
type (
	reaction struct {
		Results []struct {
			Mode      string
			Reactions []struct {
				Services      int
				Kind, Pace    string
				P50, P99, Max time.Duration
			}
			Cold    *start
			Restart *struct{ Restarts []*start }
		}
	}
	start struct {
		Services   int
		Programmed time.Duration
		Memory     struct{ Peak, Resident float64 }
	}
	packet struct {
		Backend, Family, Direction, Case, Variant, Verdict string
		Services                                           int
		Us, Ratio, Goal                                    float64
	}
)

// Alone has Sluice's own values.
func (p *page) Alone() rig.Table {
	t := rig.Table{Head: []string{"", "Services", "value", "", "goal"}}
	add := func(what, mode string, services int, cells ...string) {
		if mode != goalMode {
			what = mode + ": " + what
		}
		t.Rows = append(t.Rows, append([]string{what, grouped(services)}, cells...))
	}
	took := func(d time.Duration) string { return result.Figure{Unit: "s", Value: d.Seconds()}.Text() }
	for _, r := range p.Reactions {
		for _, one := range r.Results {
			for _, c := range one.Reactions {
				add(c.Kind+", "+c.Pace, one.Mode, c.Services, took(c.P50), "p99 "+took(c.P99), "")
			}
			if s := one.Cold; s != nil {
				memory := fmt.Sprintf("%.0f MiB, peak %.0f MiB", s.Memory.Resident, s.Memory.Peak)
				add("cold start", one.Mode, s.Services, took(s.Programmed), memory, "")
			}
			if one.Restart != nil && len(one.Restart.Restarts) > 0 {
				var all []time.Duration
				for _, s := range one.Restart.Restarts {
					all = append(all, s.Programmed)
				}
				add("restart", one.Mode, one.Restart.Restarts[0].Services, took(rig.Percentile(all, 50)), "", "")
			}
		}
	}
	for _, s := range p.Soaks {
		for _, c := range s.Checks {
			if c.What == "lost" || c.What == "heap, MiB" || c.What == "resident, MiB" {
				what := fmt.Sprintf("%.0f min, %s", s.Seconds/60, c.What)
				add(what, goalMode, s.Services, bold(c.Last, !c.OK), "first "+c.First, c.Allowed)
			}
		}
	}
	p.packets(add)
	return t
}

// packets adds a row for each case: the range of the ratios to kube-proxy over families and directions.
func (p *page) packets(add func(what, mode string, services int, cells ...string)) {
	type summary struct {
		packet
		low, high, us float64
		count, missed int
	}
	var all []*summary
	for _, k := range p.Packets {
		if k.Variant != result.Sluice || k.Ratio == 0 {
			continue
		}
		i := slices.IndexFunc(all, func(s *summary) bool {
			return s.Case == k.Case && s.Backend == k.Backend && s.Services == k.Services
		})
		if i < 0 {
			i, all = len(all), append(all, &summary{packet: k, low: k.Ratio})
		}
		s := all[i]
		s.low, s.high, s.us, s.count = min(s.low, k.Ratio), max(s.high, k.Ratio), s.us+k.Us, s.count+1
		if k.Verdict == "MISSED" {
			s.missed++
		}
	}
	for _, s := range all {
		value, goal := fmt.Sprintf("%.3f–%.3f ×", s.low, s.high), fmt.Sprintf("≤ %.3g", s.Goal)
		if s.missed > 0 {
			goal += fmt.Sprintf(", missed %d of %d", s.missed, s.count)
		}
		add(s.Case, s.Backend, s.Services, bold(value, s.missed > 0), fmt.Sprintf("%.1f µs", s.us/float64(s.count)), goal)
	}
}

// Cost draws the time of one exchange as a ratio to kube-proxy's.
func (p *page) Cost() string {
	drawn := plot{title: "Cost of an exchange", xLabel: "time, kube-proxy = 1 (IPv4, forwarded, nftables)"}
	for i, name := range []string{result.KubeProxy, result.Sluice, "floor", "none"} {
		l := line{name: name, style: []string{name, name, "blue", "gray"}[i]}
		for _, k := range slices.Backward(p.Packets) {
			if k.Variant != l.name || k.Family != "IPv4" || k.Direction != "forwarded" || k.Backend != goalMode || k.Ratio == 0 {
				continue
			}
			if !slices.Contains(drawn.rows, k.Case) {
				drawn.rows = append(drawn.rows, k.Case)
			}
			l.points = append(l.points, point{k.Ratio, float64(slices.Index(drawn.rows, k.Case))})
		}
		drawn.lines = append(drawn.lines, l)
	}
	return p.picture("packets", drawn)
}
