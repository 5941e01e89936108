// SPDX-License-Identifier: Apache-2.0

// Mutations checks the checks. It puts defects back that the changelog says were fixed, one at a
// time, and runs the campaigns until one finds it.
//
//	go run ./test/mutations -only '' -seeds 2000 -minutes 10
//
// It builds the tests with the defect by an overlay: the tree stays as it is. It ends with a table
// of what was found by which campaign and how soon, and with status 1 if a defect was not found.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/sluice-proxy/sluice/test/defects"
)

func main() {
	var r runner
	var only, by string
	var short, list bool
	flag.StringVar(&only, "only", "", "regular expression of names of mistakes")
	flag.StringVar(&by, "harness", "", "only those that are found by: unit, sim, scenarios or campaign; with commas")
	flag.Func("campaign", "regular expression of names of campaigns", func(text string) (err error) {
		r.campaigns, err = regexp.Compile(text)
		return err
	})
	flag.IntVar(&r.seeds, "seeds", 2000, "seeds of the simulation for each mistake")
	minutes := flag.Float64("minutes", 10, "time for each campaign and mistake")
	flag.BoolVar(&short, "short", false, "only mistakes that are found within seconds")
	flag.BoolVar(&list, "list", false, "list the mistakes, and check that the code still has their texts")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	r.limit = time.Duration(*minutes * float64(time.Minute))
	chosen, err := choose(only, by, short)
	if err == nil && list {
		err = show(chosen)
	} else if err == nil {
		err = r.all(ctx, chosen)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutations:", err)
		stop()
		os.Exit(1)
	}
}

func choose(only, by string, short bool) (chosen []mutation, err error) {
	pattern, err := regexp.Compile(only)
	if err != nil {
		return nil, err
	}
	for _, m := range mutations {
		named := by == "" || slices.Contains(strings.Split(by, ","), string(m.campaigns[0].harness))
		if named && pattern.MatchString(m.name) && (m.short || !short) {
			chosen = append(chosen, m)
		}
	}
	if len(chosen) == 0 {
		return nil, fmt.Errorf("no mistake has a name like %q", only)
	}
	return chosen, nil
}

// show lists defects.
func show(chosen []mutation) error {
	for _, m := range chosen {
		dir, err := os.MkdirTemp("", "mutations")
		if err != nil {
			return err
		}
		_, err = defects.Overlay(".", dir, m.edits...)
		if err := cleared(dir, err); err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
		fmt.Printf("%s (%s)\n\t%s\n", m.name, m.campaigns[0].harness, m.sentence)
	}
	return nil
}

// cleared removes a directory and returns the first error.
func cleared(dir string, err error) error {
	if e := os.RemoveAll(dir); err == nil {
		err = e
	}
	return err
}

// finding is how a defect was found.
type finding struct {
	mutation mutation
	campaign string
	// where is the seed or the test, what the first line of the failure; empty if nothing was found.
	where, what string
	took        time.Duration
}

func (r *runner) all(ctx context.Context, chosen []mutation) error {
	var found []finding
	missed := 0
	var err error
	if r.clean, err = os.MkdirTemp("", "mutations"); err != nil {
		return err
	}
	defer os.RemoveAll(r.clean)
	for i, m := range chosen {
		fmt.Printf("%d of %d: %s\n", i+1, len(chosen), m.name)
		f, err := r.hunt(ctx, m)
		if err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
		if f.what == "" {
			missed++
			fmt.Printf("\tnot found in %v\n", f.took.Round(time.Second))
		} else {
			fmt.Printf("\t%s, %s, after %v: %s\n", f.campaign, f.where, f.took.Round(100*time.Millisecond), f.what)
		}
		found = append(found, f)
	}
	fmt.Println()
	if err := table(found); err != nil {
		return err
	}
	if missed > 0 {
		return fmt.Errorf("%d of %d mistakes were not found", missed, len(chosen))
	}
	return nil
}

func table(found []finding) error {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "MISTAKE\tFOUND BY\tWHERE\tSECONDS\tFIRST LINE")
	for _, f := range found {
		if f.what == "" {
			f.campaign, f.where = "nothing", "-"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%.1f\t%s\n", f.mutation.name, f.campaign, f.where, f.took.Seconds(), shorten(f.what))
	}
	return w.Flush()
}

// shorten cuts a line for the table.
func shorten(line string) string {
	const most = 110
	if runes := []rune(line); len(runes) > most {
		return string(runes[:most]) + " …"
	}
	return line
}

// hunt runs the campaigns until one finds a defect.
func (r *runner) hunt(ctx context.Context, m mutation) (finding, error) {
	f := finding{mutation: m}
	dir, err := os.MkdirTemp("", "mutations")
	if err != nil {
		return f, err
	}
	overlay, err := defects.Overlay(".", dir, m.edits...)
	for _, c := range m.campaigns {
		if r.campaigns != nil && !r.campaigns.MatchString(c.name) {
			continue
		}
		if err != nil || f.what != "" && !m.every() {
			break
		}
		f.campaign = c.name
		switch c.harness {
		case scenarios:
			err = r.play(ctx, c, dir, overlay, &f)
		case faulty:
			err = r.suffer(ctx, c, &f)
		default:
			err = r.test(ctx, c, dir, overlay, &f)
		}
		if err == nil {
			err = ctx.Err() // stopped, and not passed
		}
		if err == nil && f.what == "" && m.every() {
			break // the table names the campaign that misses it
		}
	}
	return f, cleared(dir, err)
}

// test runs tests that are built with the defect, and without it what has found it.
func (r *runner) test(ctx context.Context, c campaign, dir, overlay string, f *finding) error {
	binary := filepath.Join(dir, nameOf(c))
	if _, missing := os.Stat(binary); missing != nil {
		if err := build(ctx, overlay, c.pkg, binary); err != nil {
			return err
		}
	}
	began := time.Now()
	var err error
	f.where, f.what, err = r.run(ctx, c, binary)
	if f.took += time.Since(began); err != nil || f.what == "" {
		return err
	}
	return r.unharmed(ctx, c, *f)
}

// nameOf is the file name of the tests of a campaign.
func nameOf(c campaign) string {
	return strings.ReplaceAll(strings.Trim(c.pkg, "./"), "/", "-") + ".test"
}

// unharmed is an error if what found a defect fails without it as well.
func (r *runner) unharmed(ctx context.Context, c campaign, f finding) error {
	binary := filepath.Join(r.clean, nameOf(c))
	if _, missing := os.Stat(binary); missing != nil {
		if err := build(ctx, "", c.pkg, binary); err != nil {
			return err
		}
	}
	var seed string
	if n, found := strings.CutPrefix(f.where, "seed "); found {
		seed = "SLUICE_SIM_SEED=" + n
	} else {
		c.tests = "^" + strings.ReplaceAll(f.where, "/", "$/^") + "$"
	}
	where, what, err := r.run(ctx, c, binary, seed)
	if err == nil && what != "" {
		err = fmt.Errorf("%s fails without the mistake, too: %s", where, what)
	}
	return err
}

func build(ctx context.Context, overlay, pkg, binary string) error {
	return defects.Build(ctx, ".", overlay, binary, "test", "-c", "-ldflags=-s -w", pkg)
}
