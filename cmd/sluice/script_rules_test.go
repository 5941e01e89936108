package main

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// unstable matches what two listings of the same rules differ in: remarks with
// the time, and counters.
var unstable = regexp.MustCompile(`(?m)^#.*\n| \[\d+:\d+\]$`)

// listing gives the rules of both families in all tables, in the variant of the
// script, as the programs print them; in nftables mode the tables of the proxy
// besides.
func (b *bench) listing() string {
	variant := b.Getenv("VARIANT")
	if variant == "" {
		variant = "nft"
	}
	var all strings.Builder
	for _, base := range []string{"iptables", "ip6tables"} {
		program := base + "-" + variant + "-save"
		all.WriteString(program + "\n" + unstable.ReplaceAllString(b.printed(program), ""))
	}
	if b.Getenv("MODE") != "nftables" {
		return all.String()
	}
	tables := b.printed("nft", "list", "tables")
	for _, family := range []string{"ip", "ip6"} {
		if strings.Contains(tables, "table "+family+" kube-proxy\n") {
			all.WriteString(sortBlocks(b.printed("nft", "list", "table", family, "kube-proxy")))
		}
	}
	return all.String()
}

// printed gives what a program prints inside, and fails the script if it fails.
func (b *bench) printed(words ...string) string {
	words = append(append([]string{}, b.entrance...), words...)
	status, stdout, stderr := b.finish(words)
	if status != 0 {
		b.Fatalf("%s: status %d: %s", strings.Join(words, " "), status, stderr)
	}
	return stdout
}

// block is where a chain, set or map of a table begins.
var block = regexp.MustCompile(`(?m)^\t(chain|set|map) `)

// sortBlocks sorts the chains, sets and maps of a table, which nft prints in the
// order in which they were made.
func sortBlocks(table string) string {
	table = strings.TrimSuffix(table, "}\n")
	var blocks []string
	end := len(table)
	for _, at := range slices.Backward(block.FindAllStringIndex(table, -1)) {
		blocks = append(blocks, strings.TrimSpace(table[at[0]:end]))
		end = at[0]
	}
	slices.Sort(blocks)
	return table[:end] + strings.Join(blocks, "\n\n") + "\n}\n"
}

// rules FILE
//
// Writes the rules in the kernel to a file.
func cmdRules(b *bench, args []string) {
	if len(args) != 1 {
		b.Fatalf("usage: rules FILE")
	}
	b.Check(os.WriteFile(b.MkAbs(args[0]), []byte(b.listing()), 0o600))
}

// [!] await-rules WITHIN PATTERN
//
// Waits until the rules in the kernel match (or no longer match). WITHIN is
// counted from the last edit, remove or start, to the end of the listing that
// shows it.
func cmdAwaitRules(ts *testscript.TestScript, neg bool, args []string) {
	b := benchOf(ts)
	if len(args) != 2 {
		b.Fatalf("usage: [!] await-rules WITHIN PATTERN")
	}
	pattern := regexp.MustCompile(`(?m)` + args[1])
	b.awaitRules(args[0], func(rules string) bool { return pattern.MatchString(rules) != neg })
}

// await-same WITHIN FILE
//
// Waits until the rules in the kernel are the same as those in a file, to the
// byte. WITHIN is counted as in await-rules.
func cmdAwaitSame(b *bench, args []string) {
	if len(args) != 2 {
		b.Fatalf("usage: await-same WITHIN FILE")
	}
	want := b.ReadFile(args[1])
	b.awaitRules(args[0], func(rules string) bool { return rules == want })
}

func (b *bench) awaitRules(limit string, right func(rules string) bool) {
	within, err := time.ParseDuration(limit)
	b.Check(err)
	for {
		rules := b.listing()
		after := time.Since(b.changed).Round(time.Millisecond)
		switch {
		case right(rules) && after <= within:
			b.Logf("in the kernel after %v", after)
			return
		case right(rules):
			b.Fatalf("in the kernel after %v, want %v", after, within)
		case after > waitMax:
			b.Fatalf("%v later the rules are\n%s", after, rules)
		}
	}
}
