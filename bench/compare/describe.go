package main

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"

	"github.com/sluice-proxy/sluice/bench/result"
	"github.com/sluice-proxy/sluice/bench/rig"
)

// describe begins a result: the machine, the programs and the plan.
func describe(ctx context.Context, o options) (rig.Machine, *result.Comparison, error) {
	out := &result.Comparison{
		Services: o.N, Mode: o.Mode, Variant: o.Variant, Minutes: o.Minutes, Rounds: o.Rounds, Steps: o.Steps, Mix: map[string]int{},
	}
	for _, it := range plan(o.N) {
		out.Mix[string(it.class)]++
		out.Endpoints += len(it.endpoints)
	}
	machine := rig.ThisMachine(ctx)
	for _, name := range o.programs() {
		command := []string{o.binary(name), "--version"}
		if name == result.Sluice {
			command[1] = "version"
		}
		printed, err := exec.CommandContext(ctx, command[0], command[1:]...).Output()
		if err != nil {
			return machine, nil, fmt.Errorf("%s: %w", strings.Join(command, " "), err)
		}
		machine.Versions[name] = strings.TrimSpace(string(printed))
	}
	return machine, out, nil
}

// command is what to type to repeat this.
func (o options) command() string {
	words := []string{"make bench-compare", fmt.Sprintf("N=%d", o.N), "MODE=" + o.Mode}
	if o.Variant != "" {
		words = append(words, "VARIANT="+o.Variant)
	}
	words = append(words, fmt.Sprintf("MINUTES=%g", o.Minutes))
	if o.Rounds != 1 {
		words = append(words, fmt.Sprintf("ROUNDS=%d", o.Rounds))
	}
	if !slices.Equal(o.Steps, stepNames()) {
		words = append(words, "STEPS="+strings.Join(o.Steps, ","))
	}
	return strings.Join(words, " ")
}
