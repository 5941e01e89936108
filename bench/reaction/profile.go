package main

import (
	"errors"
	"os"
	"runtime"
	"runtime/pprof"
)

// profiled runs the measured phase of a measurement, and writes the profiles that
// are asked for.
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
