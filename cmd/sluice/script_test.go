// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/test/apitest"
	"github.com/sluice-proxy/sluice/test/netnstest"
	"github.com/sluice-proxy/sluice/test/testenv"
)

// TestMain lets the test binary be the command, under its two names.
func TestMain(m *testing.M) {
	command := func() { os.Exit(run(os.Args)) }
	testscript.Main(m, map[string]func(){"sluice": command, "kube-proxy": command})
}

// TestScripts runs the scripts that do not depend on the backend.
func TestScripts(t *testing.T) {
	runScripts(t, filepath.Join("testdata", "script"), map[string]string{"MODE": "nftables"})
}

// TestMode_Scripts runs the scripts about mode changes that TestScripts and the scenarios S-SYNC also cover.
func TestMode_Scripts(t *testing.T) {
	testenv.OnlyInAll(t)
	runScripts(t, filepath.Join("testdata", "script", "modes"), map[string]string{"MODE": "nftables"})
}

// TestKernel_Scripts runs the scripts about rules with each backend. $MODE is the backend, $DOMAIN its name in the log,
// and $VARIANT the variant of iptables that has the rules (in nftables mode, those of other programs). $REJECTED4 and 6
// match a rule that rejects connections to the sample Service, $CLEANED4 and 6 the output of cleanup, and $PLANNED4 and
// 6 its output with --dry-run.
func TestKernel_Scripts(t *testing.T) {
	for _, variant := range testenv.Variants("nft", "legacy") {
		t.Run("iptables-"+variant, func(t *testing.T) {
			runScripts(t, filepath.Join("testdata", "script", "kernel"), map[string]string{
				"MODE": "iptables", "DOMAIN": "iptables-" + variant, "VARIANT": variant,
				"REJECTED4": `-d 172\.30\.0\.41/32 -p tcp .*-j REJECT`, "REJECTED6": `-d fd00:172:30::41/128 -p tcp .*-j REJECT`,
				"CLEANED4": `^` + variant + ` +IPv4 +[1-9]`, "CLEANED6": `^` + variant + ` +IPv6 +[1-9]`,
				"PLANNED4": `^` + variant + ` +IPv4 +[1-9]`, "PLANNED6": `^` + variant + ` +IPv6 +[1-9]`,
			})
		})
	}
	t.Run("nftables", func(t *testing.T) {
		runScripts(t, filepath.Join("testdata", "script", "kernel"), map[string]string{
			"MODE": "nftables", "DOMAIN": "nftables", "VARIANT": "nft",
			"REJECTED4": `(?s)set no-endpoints-\w+ \{[^}]*172\.30\.0\.41 \. tcp \. 8[01]`, "REJECTED6": `(?s)set no-endpoints-\w+ \{[^}]*fd00:172:30::41 \. tcp \. 8[01]`,
			"CLEANED4": `^ +IPv4 +removed$`, "CLEANED6": `^ +IPv6 +removed$`,
			"PLANNED4": `^ +IPv4 +to remove$`, "PLANNED6": `^ +IPv6 +to remove$`,
		})
	})
}

// runScripts runs the scripts of a folder. Each has its own network namespace and xtables
// lock, and its commands run, fails and start run programs there. $EXAMPLES is the folder
// of sample manifests, and variant.conf a configuration with $VARIANT.
func runScripts(t *testing.T, dir string, env map[string]string) {
	testenv.NeedsRoot(t)
	examples, err := filepath.Abs(filepath.Join("..", "..", "examples"))
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir:                 dir,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("EXAMPLES", examples)
			e.Setenv("GORACE", "atexit_sleep_ms=0") // the detector's pause of a second at each end
			e.Setenv("XTABLES_LOCKFILE", filepath.Join(e.WorkDir, "xtables.lock"))
			for _, name := range slices.Sorted(maps.Keys(env)) {
				e.Setenv(name, env[name])
			}
			settings := "apiVersion: sluice.dev/v1alpha1\nkind: SluiceConfiguration\niptables: {variant: " + cmp.Or(env["VARIANT"], "auto") + "}\n"
			return errors.Join(os.WriteFile(filepath.Join(e.WorkDir, "variant.conf"), []byte(settings), 0o600), newBench(e))
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"api":         positive(cmdAPI),
			"events":      positive(cmdEvents),
			"run":         positive(cmdRun),
			"fails":       positive(cmdFails),
			"start":       positive(cmdStart),
			"await":       positive(cmdAwait),
			"end":         positive(cmdEnd),
			"signal":      positive(cmdSignal),
			"enter":       positive(cmdEnter),
			"edit":        positive(cmdEdit),
			"remove":      positive(cmdRemove),
			"rules":       positive(cmdRules),
			"await-rules": cmdAwaitRules,
			"await-same":  positive(cmdAwaitSame),
		},
	})
}

// positive rejects a negated command.
func positive(cmd func(b *bench, args []string)) func(*testscript.TestScript, bool, []string) {
	return func(ts *testscript.TestScript, neg bool, args []string) {
		if neg {
			ts.Fatalf("this command cannot be negated")
		}
		cmd(benchOf(ts), args)
	}
}

// newBench creates the namespace of a script.
func newBench(e *testscript.Env) error {
	namespace, err := netns.New("script")
	if err != nil {
		return err
	}
	e.Defer(func() {
		if err := namespace.Close(); err != nil {
			e.T().Log(err)
		}
	})
	for _, name := range []string{"net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"} { // as on a node
		if err := namespace.Sysctl(name, "1"); err != nil {
			return err
		}
	}
	e.Values[benchKey{}] = &bench{namespace: namespace, running: make(map[string]*process)}
	return nil
}

// bench is the state of one script.
type bench struct {
	*testscript.TestScript
	namespace *netns.Namespace
	running   map[string]*process
	// api is nil before the command of that name.
	api *apitest.Server
	// entrance is the command that enters the sandbox whose rules are listed; empty
	// for the namespace itself.
	entrance []string
}

type benchKey struct{}

func benchOf(ts *testscript.TestScript) *bench {
	b := ts.Value(benchKey{}).(*bench) // newBench puts nothing else there
	b.TestScript = ts
	return b
}

// command returns a program with the script's environment.
func (b *bench) command(args []string) *exec.Cmd {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir = b.MkAbs(".")
	cmd.Env = os.Environ()
	for _, name := range []string{"XTABLES_LOCKFILE", "TMPDIR", "GORACE"} {
		cmd.Env = append(cmd.Env, name+"="+b.Getenv(name))
	}
	return cmd
}

// finish runs a program in the namespace, and returns its exit status.
func (b *bench) finish(args []string) (status int, stdout, stderr string) {
	var out, problems bytes.Buffer
	cmd := b.command(args)
	cmd.Stdout, cmd.Stderr = &out, &problems
	// A program that does not end is killed, and fails by its status.
	err := netnstest.Start(b.namespace, cmd)
	b.Check(err)
	timer := time.AfterFunc(waitMax, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	err = cmd.Wait()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode(), out.String(), problems.String()
	}
	b.Check(err)
	return 0, out.String(), problems.String()
}

// run PROGRAM ARGUMENT...
//
// Runs a program in the namespace; it must succeed. Its output is in run.out.
func cmdRun(b *bench, args []string) {
	if len(args) == 0 {
		b.Fatalf("usage: run PROGRAM ARGUMENT...")
	}
	status, stdout, stderr := b.finish(args)
	if status != 0 {
		b.Fatalf("status %d\n%s%s", status, stdout, stderr)
	}
	b.Check(os.WriteFile(b.MkAbs("run.out"), []byte(stdout), 0o600))
}

// fails STATUS PATTERN PROGRAM ARGUMENT...
//
// Runs a program in the namespace. It must exit with the status, print nothing on standard
// output, and one line on standard error, which matches.
func cmdFails(b *bench, args []string) {
	if len(args) < 3 {
		b.Fatalf("usage: fails STATUS PATTERN PROGRAM ARGUMENT...")
	}
	status, stdout, stderr := b.finish(args[2:])
	line, ended := strings.CutSuffix(stderr, "\n")
	switch {
	case args[0] != exitText(status):
		b.Fatalf("status %d, want %s\n%s%s", status, args[0], stdout, stderr)
	case stdout != "" || !ended || strings.Contains(line, "\n"):
		b.Fatalf("want one line on standard error, got\n[stdout]\n%s[stderr]\n%s", stdout, stderr)
	case !regexp.MustCompile(args[1]).MatchString(line):
		b.Fatalf("%q does not match %q", line, args[1])
	}
}

// edit FILE OLD NEW
//
// Replaces every OLD in a file as editors do: with a new file, renamed over the old one.
func cmdEdit(b *bench, args []string) {
	if len(args) != 3 {
		b.Fatalf("usage: edit FILE OLD NEW")
	}
	path := b.MkAbs(args[0])
	now := b.ReadFile(args[0])
	next := strings.ReplaceAll(now, args[1], args[2])
	if next == now {
		b.Fatalf("%s holds no %q", args[0], args[1])
	}
	hidden := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".swp")
	b.Check(os.WriteFile(hidden, []byte(next), 0o600))
	b.Check(os.Rename(hidden, path))
}

// remove FILE
func cmdRemove(b *bench, args []string) {
	if len(args) != 1 {
		b.Fatalf("usage: remove FILE")
	}
	b.Check(os.Remove(b.MkAbs(args[0])))
}
