package iptables

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	goiptables "github.com/coreos/go-iptables/iptables"
)

// copiesMax bounds how many copies of one hook are removed. Two proxies in turn
// leave two; thousands would mean that deleting does not delete.
const copiesMax = 1000

// EnsureHook inserts a rule at position 1 of a built-in chain unless it is
// there. A call to the tool cannot be interrupted; it ends by itself when it
// has waited for the lock.
func (e *Exec) EnsureHook(ctx context.Context, table Table, chain string, rule []string) error {
	there, err := e.hasHook(ctx, table, chain, rule)
	if err != nil || there {
		return err
	}
	return e.edit(ctx, table, append([]string{"-I", chain, "1"}, rule...)...)
}

// RemoveHook deletes every copy of a rule.
func (e *Exec) RemoveHook(ctx context.Context, table Table, chain string, rule []string) error {
	for range copiesMax {
		there, err := e.hasHook(ctx, table, chain, rule)
		if err != nil || !there {
			return err
		}
		if err := e.edit(ctx, table, append([]string{"-D", chain}, rule...)...); err != nil {
			return err
		}
	}
	return e.hookError(ctx, "-D", table, chain, rule,
		fmt.Errorf("the rule is still there after it was deleted %d times", copiesMax))
}

// edit changes a single rule, by a process whose number OnStart tells (which go-iptables
// keeps to itself).
func (e *Exec) edit(ctx context.Context, table Table, args ...string) error {
	_, err := e.run(ctx, nil, e.programs.iptables, append([]string{"-w", strconv.Itoa(e.waitSeconds), "-t", string(table)}, args...)...)
	return err
}

// HasChain reports whether a chain exists. When the tool cannot say, for example
// because somebody holds the lock, that is an error, not a "no".
func (e *Exec) HasChain(ctx context.Context, table Table, chain string) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, context.Cause(ctx)
	}
	exists, err := e.hooks.ChainExists(string(table), chain)
	if err != nil {
		return false, e.hookError(ctx, "-S", table, chain, nil, err)
	}
	return exists, nil
}

func (e *Exec) hasHook(ctx context.Context, table Table, chain string, rule []string) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, e.hookError(ctx, "-C", table, chain, rule, err)
	}
	there, err := e.hooks.Exists(string(table), chain, rule...)
	if err == nil {
		return there, nil
	}
	// A rule cannot lead to a chain that does not exist. The programs say so
	// with exit status 2 instead of 1: "Couldn't load target" (legacy),
	// "Chain 'X' does not exist" (nft).
	if text := err.Error(); strings.Contains(text, "Couldn't load target") || strings.Contains(text, "does not exist") {
		return false, nil
	}
	return false, e.hookError(ctx, "-C", table, chain, rule, err)
}

// hookError turns an error of go-iptables into a *ToolError.
func (e *Exec) hookError(ctx context.Context, action string, table Table, chain string, rule []string, err error) error {
	f := failure{
		command: strings.Join(append([]string{e.programs.iptables, "-t", string(table), action, chain}, rule...), " "),
		status:  -1,
		err:     err,
	}
	if exit, ok := errors.AsType[*goiptables.Error](err); ok {
		f.status = exit.ExitStatus()
		f.err = fmt.Errorf("exit status %d", f.status)
		// The library keeps the tool's words behind its own.
		_, words, _ := strings.Cut(exit.Error(), fmt.Sprintf("exit status %d: ", f.status))
		f.output = strings.TrimSpace(words)
	}
	return e.fail(ctx, f)
}

var _ Tool = (*Exec)(nil)
