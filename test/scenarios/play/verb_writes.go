package play

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-proxy/sluice/test/scenarios/cluster"
	"github.com/sluice-proxy/sluice/test/scenarios/network"
)

// How many writes to the kernel come of changes: in the family that has most of
// them, counted by the proxy, within a time from the first change on.
var _ = define("writes", verb{usage: `writes 1..3 in 2.5s of 500 changes in 1s (the Service's timeout of affinity changes), or
writes 0..0 in 1s of resync a b (the Service and its slice with these endpoints are sent again as they are)`, kernel: true, parse: parseWrites})

// writes is what the verb says.
type writes struct {
	least, most int
	// within is the time in which writes count.
	within time.Duration
	// changes are made in the time during; none are a resync of endpoints.
	changes   int
	during    time.Duration
	endpoints []string
}

// writesMetric counts writes by domain and outcome.
const writesMetric = "sluice_writes_total"

func parseWrites(words []string) (statement, error) {
	const form = "want MIN..MAX in TIME of N changes in TIME, or of resync ENDPOINT…"
	if len(words) < 5 || words[1] != "in" || words[3] != "of" {
		return nil, errors.New(form)
	}
	var w writes
	var errs [5]error
	least, most, _ := strings.Cut(words[0], "..")
	w.least, errs[0] = strconv.Atoi(least)
	w.most, errs[1] = strconv.Atoi(most)
	w.within, errs[2] = time.ParseDuration(words[2])
	switch rest := words[4:]; {
	case rest[0] == "resync":
		w.endpoints = rest[1:]
	case len(rest) == 4 && rest[1] == "changes" && rest[2] == "in":
		w.changes, errs[3] = strconv.Atoi(rest[0])
		w.during, errs[4] = time.ParseDuration(rest[3])
	default:
		return nil, errors.New(form)
	}
	return settled(w.run), errors.Join(errs[:]...)
}

func (w writes) run(ctx context.Context, s *Stage, world *network.World) error {
	before, err := quiet(ctx, world)
	if err != nil {
		return err
	}
	begin := time.Now()
	if err := w.change(ctx, s, begin); err != nil {
		return err
	}
	if late := time.Since(begin); late > w.within {
		return fmt.Errorf("the changes alone took %v", late)
	}
	if err := sleep(ctx, time.Until(begin.Add(w.within))); err != nil {
		return err
	}
	after, err := writesByDomain(ctx, world)
	if err != nil {
		return err
	}
	most := 0
	for domain, n := range after {
		most = max(most, n-before[domain])
	}
	if most < w.least || most > w.most {
		return fmt.Errorf("%d writes within %v, want %d to %d; in all %v, before %v", most, w.within, w.least, w.most, after, before)
	}
	return nil
}

// change sends the changes, evenly spread over their time.
func (w writes) change(ctx context.Context, s *Stage, begin time.Time) error {
	if w.changes == 0 {
		return errors.Join(s.ChangeService(cluster.Main, nil), s.SetSlice("main", w.endpoints))
	}
	s.changed = true
	for i := range w.changes {
		if err := s.ChangeService(cluster.Main, []string{fmt.Sprintf("affinity=%d", 1000+i)}); err != nil {
			return err
		}
		if err := sleep(ctx, time.Until(begin.Add(w.during*time.Duration(i+1)/time.Duration(w.changes)))); err != nil {
			return err
		}
	}
	return nil
}

// quiet waits until nothing has been written for a while, and gives the counts.
func quiet(ctx context.Context, world *network.World) (map[string]int, error) {
	// Longer than the longest pause between two writes that a scenario asks for.
	const silence = 1500 * time.Millisecond
	var before map[string]int
	for range 20 {
		now, err := writesByDomain(ctx, world)
		if err != nil {
			return nil, err
		}
		if before != nil && maps.Equal(now, before) {
			return now, nil
		}
		before = now
		if err := sleep(ctx, silence); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("the proxy keeps writing: %v", before)
}

// writesByDomain reads the proxy's counts, over all outcomes.
func writesByDomain(ctx context.Context, world *network.World) (map[string]int, error) {
	families, err := scrape(ctx, world)
	if err != nil {
		return nil, err
	}
	counts := make(map[string]int)
	for _, series := range families[writesMetric].GetMetric() {
		for _, label := range series.GetLabel() {
			if label.GetName() == "domain" {
				counts[label.GetValue()] += int(valueOf(series))
			}
		}
	}
	if len(counts) == 0 {
		return nil, fmt.Errorf("the proxy has no metric %s", writesMetric)
	}
	return counts, nil
}
