package web

import (
	"fmt"
	"net"
	"net/http"
	"time"
)

// Config is what a Server is made of. Pages whose handler or function is nil are not
// there.
type Config struct {
	// Address is host and port to listen on.
	Address string
	// HardFail makes the first failure to listen the end of Run; otherwise it is
	// tried again every 5 s.
	HardFail bool
	// Failed is told each failure to listen or to serve; it must not block. Nil
	// tells nobody.
	Failed func(error)
	// Handing tells that another process is about to give the address up, or to wait
	// for: as long as it does, a failure to listen is nobody's mistake, not even with
	// HardFail, and it is tried again ten times a second. Nil means never.
	Handing func() bool
	// Listening is told nil whenever the server listens, and the error whenever it
	// cannot, or no longer does; it must not block. Nil tells nobody.
	Listening func(error)
	// Inside runs a function on a thread in the network namespace to listen in.
	// Default: the process's own namespace.
	Inside func(func() error) error

	// Mode is what /proxyMode says: "iptables", "ipvs" or "nftables".
	Mode string
	// Metrics serves /metrics, Services /metrics/services.
	Metrics, Services http.Handler
	// Configz gives the configurations that /configz shows, each under its
	// name; they must be values that JSON can say.
	Configz func() map[string]any
	// Flagz gives the flags for /flagz (gate ComponentFlagz), without secrets.
	Flagz func() map[string]string
	// Statusz describes the program for /statusz (gate ComponentStatusz).
	Statusz *Program
	// Actors gives what /debug/actors shows, with up to limit actors, 0 being
	// all; a value that JSON can say.
	Actors func(limit int) any
	// Profiling serves /debug/pprof and /debug/flags.
	Profiling bool
	// SetVerbosity sets the verbosity of the logs to what was put at
	// /debug/flags/v, and gives the words to answer with. An error says what was
	// wrong with it.
	SetVerbosity func(string) (string, error)
}

// Program describes a program for people.
type Program struct {
	// Started is when the process began.
	Started time.Time
	// Version is the release of Kubernetes that it behaves like, for example
	// "1.36.3".
	Version string
}

func (c Config) validate() error {
	if _, _, err := net.SplitHostPort(c.Address); err != nil {
		return fmt.Errorf("metrics address %q: want an address and a port: %w", c.Address, err)
	}
	return nil
}

func (c Config) withDefaults() Config {
	if c.Failed == nil {
		c.Failed = func(error) {}
	}
	if c.Handing == nil {
		c.Handing = func() bool { return false }
	}
	if c.Listening == nil {
		c.Listening = func(error) {}
	}
	if c.Inside == nil {
		c.Inside = func(f func() error) error { return f() }
	}
	return c
}
