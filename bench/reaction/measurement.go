// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/pprof"
	"strings"

	"github.com/sluice-proxy/sluice/bench/rig"
)

// measurement is one thing to measure, with its sizes; the name says both.
type measurement struct {
	kind string
	// size is the number of Services.
	size int
	// endpoints is the number of endpoints per Service in cold and restart.
	endpoints int
}

// The modes that can be measured.
const nftables, iptables = "nftables", "iptables"

// all are the default measurements, by mode.
var all = map[string][]string{
	nftables: {
		"react-1000", "react-10000", "react-50000", "churn-1000", "churn-10000",
		"cold-10000x1", "cold-10000x10", "cold-5000x50",
		"restart-1000x10", "restart-10000x10",
	},
	iptables: {"react-1000", "react-5000", "cold-5000x10"},
}

// choose returns the chosen names: default ones with the given beginning, or one of any size.
func choose(mode, only string) ([]string, error) {
	return rig.Choose(only, all[mode], func(word string) bool {
		_, err := parseMeasurement(word)
		return err == nil
	})
}

// parseMeasurement reads a name in full.
func parseMeasurement(name string) (m measurement, err error) {
	kind, size, _ := strings.Cut(name, "-")
	m.kind = kind
	// The result must print as the name, so nothing may follow it.
	switch kind {
	case "react", "churn":
		_, err = fmt.Sscanf(size, "%d", &m.size)
		m.endpoints = 1
	case "cold", "restart":
		_, err = fmt.Sscanf(size, "%dx%d", &m.size, &m.endpoints)
	default:
		err = fmt.Errorf("unknown kind")
	}
	if err != nil || m.size < 1 || m.endpoints < 1 || m.String() != name {
		return m, fmt.Errorf("measurement %q: must be react-N, churn-N, cold-NxN or restart-NxN", name)
	}
	return m, nil
}

// String returns the name.
func (m measurement) String() string {
	if m.kind == "cold" || m.kind == "restart" {
		return fmt.Sprintf("%s-%dx%d", m.kind, m.size, m.endpoints)
	}
	return fmt.Sprintf("%s-%d", m.kind, m.size)
}

// run makes the measurement in this process.
func (m measurement) run(ctx context.Context, o options, r *result) error {
	switch m.kind {
	case "react":
		return measureReactions(ctx, o, m, r)
	case "restart":
		return measureRestart(ctx, m, r)
	case "churn":
		return measureChurn(ctx, o, m, r)
	default:
		return measureColdStart(ctx, o, m, r)
	}
}

// profileName is where the profile of a measurement goes.
func (m measurement) profileName(file string) string { return file + "." + m.String() }

// profiled runs the measured phase of a measurement, and writes the requested profiles.
func profiled(o options, m measurement, run func() error) (err error) {
	if o.cpuProfile != "" {
		f, err := os.Create(m.profileName(o.cpuProfile))
		if err != nil {
			return err
		}
		if err := pprof.StartCPUProfile(f); err != nil {
			return errors.Join(err, f.Close())
		}
		defer func() {
			pprof.StopCPUProfile()
			err = errors.Join(err, f.Close())
		}()
	}
	if err := run(); err != nil || o.memProfile == "" {
		return err
	}
	f, err := os.Create(m.profileName(o.memProfile))
	if err != nil {
		return err
	}
	runtime.GC() // a heap profile tells of the last collection
	return errors.Join(pprof.Lookup("heap").WriteTo(f, 0), f.Close())
}
