package iptables

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-proxy/sluice/service"
)

// CleanupSummary counts what a cleanup removed.
type CleanupSummary struct {
	// Hooks is the number of different rules removed from built-in chains.
	Hooks int
	// Chains is the number of chains removed from each table; tables without
	// any are left out.
	Chains map[Table]int
}

// Any tells whether something was there to remove.
func (s CleanupSummary) Any() bool { return s.Hooks > 0 || len(s.Chains) > 0 }

// Cleanup removes what a territory has, ours or what a kube-proxy left, from one
// family's tables: hooks and chains of a table at once, or, where something is in the
// way of that, hooks one by one and then all chains. What is shared with the kubelet
// stays, and nothing else is touched. What is already gone is no error.
//
// A rule of somebody else that leads to one of our chains keeps that chain from
// being deleted; it is emptied, and the error names the rule. The errors of all
// steps are joined; one does not keep the others from being made.
func Cleanup(ctx context.Context, family service.Family, tool Tool, of Territory) (CleanupSummary, error) {
	summary := CleanupSummary{Chains: make(map[Table]int)}
	var failed []error
	for _, table := range [...]Table{Mangle, Filter, NAT} {
		if err := cleanTable(ctx, tool, of, table, &summary); err != nil {
			failed = append(failed, fmt.Errorf("clean up %s rules in table %s: %w", family, table, err))
		}
	}
	return summary, errors.Join(failed...)
}

func cleanTable(ctx context.Context, tool Tool, of Territory, table Table, summary *CleanupSummary) error {
	s, err := readTable(ctx, tool, table)
	if err != nil {
		return err
	}
	hooks := slices.DeleteFunc(of.hooksIn(s), func(h Hook) bool { return Shared(h.Target) })
	if len(hooks) > 0 {
		text := hookDeletions(s, hooks)
		done, err := cleanChains(ctx, tool, of, s, text, make(map[string]bool), summary)
		if done {
			summary.Hooks += len(hooks)
			return err
		}
		// Step by step all is removed that can be, and what is in the way is told.
		if s, err = readTable(ctx, tool, table); err != nil {
			return err
		}
	}
	held := make(map[string]bool)
	failed := removeHooks(ctx, tool, hooks, s, held, summary)
	_, err = cleanChains(ctx, tool, of, s, nil, held, summary)
	return errors.Join(append(failed, err)...)
}

// hookDeletions are the lines that delete every copy of some hooks, which a table then
// forgets.
func hookDeletions(s *saved, hooks []Hook) (text []byte) {
	for _, hook := range hooks {
		for _, rule := range s.rules[hook.Chain] {
			if rule == hook.Text() {
				text = append(text, "-D "+hook.Chain+" "+rule+"\n"...)
			}
		}
		s.drop(hook.Chain, hook.Text())
	}
	return text
}

// cleanChains empties all chains of a table that are ours and deletes those that
// nothing holds, behind other lines. If that is not done, the tool has refused it.
func cleanChains(ctx context.Context, tool Tool, of Territory, s *saved, first []byte, held map[string]bool, summary *CleanupSummary) (done bool, err error) {
	var failed []error
	for _, rule := range of.holdForeign(s, held) {
		failed = append(failed, fmt.Errorf("a rule that is not ours leads to a chain of ours, which stays, emptied; "+
			"remove the rule and clean up again: %q in chain %s", rule.text, rule.chain))
	}
	text, removed := of.cleanupInput(s, first, held)
	if len(text) == 0 {
		return true, errors.Join(failed...)
	}
	if err := tool.Restore(ctx, text); err != nil {
		return false, errors.Join(append(failed, err)...)
	}
	if removed > 0 {
		summary.Chains[s.table] = removed
	}
	return true, errors.Join(failed...)
}

// removeHooks removes hooks from a table. One that cannot be removed holds
// the chain it leads to.
func removeHooks(ctx context.Context, tool Tool, hooks []Hook, s *saved, held map[string]bool, summary *CleanupSummary) (failed []error) {
	for _, hook := range hooks {
		if err := tool.RemoveHook(ctx, hook.Table, hook.Chain, hook.Rule); err != nil {
			failed = append(failed, err)
			held[hook.Target] = true
		} else {
			summary.Hooks++
		}
		s.drop(hook.Chain, hook.Text())
	}
	return failed
}

// drop forgets all copies of a rule.
func (s *saved) drop(chain, rule string) {
	s.rules[chain] = slices.DeleteFunc(s.rules[chain], func(r string) bool { return r == rule })
}

// chainRule is one rule and the chain it stands in.
type chainRule struct{ chain, text string }

// holdForeign finds the rules outside of our chains that lead to one of them,
// and marks those chains as held.
func (t Territory) holdForeign(s *saved, held map[string]bool) (foreign []chainRule) {
	for _, chain := range s.chains {
		if t.Owns(s.table, chain) {
			continue
		}
		for _, rule := range s.rules[chain] {
			if target := ruleTarget(rule); s.exists[target] && t.Owns(s.table, target) {
				held[target] = true
				foreign = append(foreign, chainRule{chain: chain, text: rule})
			}
		}
	}
	return foreign
}

// cleanupInput is the other lines, and what empties all our chains of a table and
// deletes those that nothing holds. It is empty when there is none of it.
func (t Territory) cleanupInput(s *saved, first []byte, held map[string]bool) (text []byte, removed int) {
	var declare, remove bytes.Buffer
	ours := slices.DeleteFunc(slices.Clone(s.chains), func(chain string) bool { return !t.Owns(s.table, chain) })
	slices.SortFunc(ours, strings.Compare)
	for _, chain := range ours {
		declare.WriteString(":" + chain + " - [0:0]\n")
		if !held[chain] {
			remove.WriteString("-X " + chain + "\n")
			removed++
		}
	}
	if len(ours) == 0 && len(first) == 0 {
		return nil, 0
	}
	return slices.Concat([]byte("*"+string(s.table)+"\n"), declare.Bytes(), first, remove.Bytes(), []byte("COMMIT\n")), removed
}
