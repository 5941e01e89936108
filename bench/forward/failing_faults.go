package main

import (
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"
)

// fault is something that goes wrong while clients connect.
type fault struct {
	name string
	// harmless says that no endpoint fails, so that none may be suspected.
	harmless bool
	// spares says that the connections of the last client address do not count.
	spares bool
	// begin starts it and returns what ends it.
	begin func(*stage) (end func() error, err error)
}

var faults = []fault{
	{name: "refuse", begin: refuse},
	{name: "blackhole", begin: func(s *stage) (func() error, error) { return s.drop("ip daddr " + failingAt().Addr().String()) }},
	{name: "refuse-forged", begin: func(s *stage) (func() error, error) {
		end, err := s.forge(forgedRange, false)
		if err != nil {
			return end, err
		}
		again, err := refuse(s)
		return func() error { return errors.Join(again(), end()) }, err
	}},
	{name: "forged", harmless: true, begin: func(s *stage) (func() error, error) { return s.forge(forgedRange, false) }},
	{name: "reset", harmless: true, begin: func(s *stage) (func() error, error) { return s.forge(forgedRange, true) }},
	{name: "few-reset", harmless: true, begin: func(s *stage) (func() error, error) { return s.forge(fewForged, true) }},
	{name: "policy", harmless: true, spares: true, begin: func(s *stage) (func() error, error) {
		return s.drop("ip saddr " + s.sources[len(s.sources)-1].String())
	}},
	{name: "flap", harmless: true, begin: flap},
}

func faultNames() (all []string) {
	for _, f := range faults {
		all = append(all, f.name)
	}
	return all
}

// refuse ends the process of an endpoint, and starts it again.
func refuse(s *stage) (func() error, error) {
	end := func() error { return s.Serve(failingAt().String(), "pods", failingAt()) }
	return end, s.Leave(failingAt())
}

// drop drops packets that arrive at the pods.
func (s *stage) drop(match string) (func() error, error) {
	end := func() error { return s.nft("delete table ip failing") }
	return end, s.nft("add table ip failing", "add chain ip failing input { type filter hook input priority 0; }",
		"add rule ip failing input "+match+" drop")
}

func (s *stage) nft(commands ...string) error {
	cmd := exec.Command("nft", "-f", "-")
	cmd.Stdin = strings.NewReader(strings.Join(commands, "\n") + "\n")
	if err := s.pods.Run(cmd); err != nil {
		return fmt.Errorf("nft: %w", err)
	}
	return nil
}

// flap removes the endpoint from the API and adds it again all the time. It answers throughout.
func flap(s *stage) (func() error, error) {
	const pause = 200 * time.Millisecond
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(pause)
		defer tick.Stop()
		for n := 0; ; n++ {
			select {
			case <-stop:
				s.list(endpointsFailing)
				return
			case <-tick.C:
				s.list([]int{3, endpointsFailing}[n%2])
			}
		}
	}()
	return func() error { close(stop); <-stopped; return nil }, nil
}
