// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-proxy/sluice/dataplane/iptables/render"
	"github.com/sluice-proxy/sluice/dataplane/iptables/rules"
	"github.com/sluice-proxy/sluice/service"
)

// CleanupSummary counts what a cleanup removed.
type CleanupSummary struct {
	// Hooks is the number of different rules removed from built-in chains.
	Hooks int
	// Chains is the number of chains removed from each table. Tables without any are left out.
	Chains map[render.Table]int
}

// Any reports whether anything was removed.
func (s CleanupSummary) Any() bool { return s.Hooks > 0 || len(s.Chains) > 0 }

// Cleanup removes the chains and hooks of an Ownership from the tables of one family, whether Sluice or
// kube-proxy created them. It removes the hooks and chains of a table together or, if that fails, hooks one by one
// and then all chains. It keeps chains and hooks that the kubelet shares. Objects that no longer exist are no error.
//
// If another program's rule jumps to one of these chains, that chain cannot be deleted. Cleanup empties
// it, and the error names the rule. A failed step does not prevent the others; their errors are
// joined.
//
// If dry is set, Cleanup removes nothing, and returns what it would remove.
func Cleanup(
	ctx context.Context, family service.Family, tool Tool, of Ownership, dry bool,
) (CleanupSummary, error) {
	c := &cleanup{from: tool, tool: tool, of: of, summary: CleanupSummary{Chains: make(map[render.Table]int)}}
	if dry {
		c.tool = reader{tool}
	}
	var failed []error
	for _, table := range render.Tables {
		if err := c.table(ctx, table); err != nil {
			failed = append(failed, fmt.Errorf("clean up %s rules in table %s: %w", family, table, err))
		}
	}
	return c.summary, errors.Join(failed...)
}

// reader is a tool that changes nothing, but reports success.
type reader struct{ Tool }

func (reader) Restore(context.Context, []byte) error                            { return nil }
func (reader) EnsureHook(context.Context, render.Table, string, []string) error { return nil }
func (reader) RemoveHook(context.Context, render.Table, string, []string) error { return nil }

// cleanup is one call of Cleanup.
type cleanup struct {
	// from reads, and tool writes.
	from, tool Tool
	of         Ownership
	summary    CleanupSummary
}

func (c *cleanup) table(ctx context.Context, table render.Table) error {
	s, err := readTable(ctx, c.from, table, c.of)
	if err != nil {
		return err
	}
	hooks := slices.DeleteFunc(c.of.hooksIn(s), func(h render.Hook) bool { return render.Shared(h.Target) })
	if len(hooks) > 0 {
		deletions := hookDeletions(s, hooks)
		done, err := c.chains(ctx, s, deletions, make(map[string]bool))
		if done {
			c.summary.Hooks += len(hooks)
			return err
		}
		// Step by step, everything else is removed, and the errors name what cannot be.
		if s, err = readTable(ctx, c.from, table, c.of); err != nil {
			return err
		}
	}
	// The target of a hook that cannot be removed cannot be deleted either.
	held := make(map[string]bool)
	var failed []error
	for _, hook := range hooks {
		if err := c.tool.RemoveHook(ctx, hook.Table, hook.Chain, hook.Rule); err != nil {
			failed = append(failed, err)
			held[hook.Target] = true
		} else {
			c.summary.Hooks++
		}
		s.drop(hook.Chain, hook.Text())
	}
	_, err = c.chains(ctx, s, nil, held)
	return errors.Join(append(failed, err)...)
}

// hookDeletions returns the lines that delete every copy of some hooks, and drops the hooks from
// the table.
func hookDeletions(s *saved, hooks []render.Hook) (lines []string) {
	for _, hook := range hooks {
		for _, rule := range s.rules[hook.Chain] {
			if rule == hook.Text() {
				lines = append(lines, "-D "+hook.Chain+" "+rule)
			}
		}
		s.drop(hook.Chain, hook.Text())
	}
	return lines
}

// chains runs the lines of first, empties all owned chains of a table, and deletes those that are not
// held. It returns false if the tool returned an error.
func (c *cleanup) chains(
	ctx context.Context, s *saved, first []string, held map[string]bool,
) (done bool, err error) {
	failed := c.holdForeign(s, held)
	ours := slices.DeleteFunc(slices.Clone(s.chains), func(chain string) bool {
		return !c.of.Owns(s.table, chain)
	})
	if len(ours) == 0 && len(first) == 0 {
		return true, errors.Join(failed...)
	}
	slices.SortFunc(ours, strings.Compare)
	in, removed := &input{}, 0
	in.line("*" + string(s.table))
	for _, chain := range ours {
		in.line(":" + chain + " - [0:0]")
	}
	for _, line := range first {
		in.line(line)
	}
	for _, chain := range ours {
		if !held[chain] {
			in.line("-X " + chain)
			removed++
		}
	}
	in.line("COMMIT")
	if err := c.tool.Restore(ctx, in.text.Bytes()); err != nil {
		return false, errors.Join(append(failed, err)...)
	}
	if removed > 0 {
		c.summary.Chains[s.table] = removed
	}
	return true, errors.Join(failed...)
}

// holdForeign marks owned chains as held if a rule of another chain jumps to them, and returns an
// error for each such rule.
func (c *cleanup) holdForeign(s *saved, held map[string]bool) (foreign []error) {
	for _, chain := range s.chains {
		if c.of.Owns(s.table, chain) {
			continue
		}
		for _, rule := range s.rules[chain] {
			if target := rules.TargetOf(rule); s.exists[target] && c.of.Owns(s.table, target) {
				held[target] = true
				foreign = append(foreign, fmt.Errorf("a foreign rule jumps to a chain of this proxy, "+
					"which remains, emptied; remove the rule and clean up again: %q in chain %s", rule, chain))
			}
		}
	}
	return foreign
}
