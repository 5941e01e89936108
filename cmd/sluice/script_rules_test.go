package main

import (
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// unstable matches what two listings of the same rules differ in: remarks with
// the time, and counters.
var unstable = regexp.MustCompile(`(?m)^#.*\n| \[\d+:\d+\]$`)

// listing gives the rules of both families in all tables, in the variant of the
// script, as the programs print them.
func (b *bench) listing() string {
	variant := b.Getenv("VARIANT")
	if variant == "" {
		variant = "nft"
	}
	var all strings.Builder
	for _, base := range []string{"iptables", "ip6tables"} {
		program := base + "-" + variant + "-save"
		words := append(append([]string{}, b.entrance...), program)
		status, stdout, stderr := b.finish(words)
		if status != 0 {
			b.Fatalf("%s: status %d: %s", strings.Join(words, " "), status, stderr)
		}
		all.WriteString(program + "\n" + unstable.ReplaceAllString(stdout, ""))
	}
	return all.String()
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
