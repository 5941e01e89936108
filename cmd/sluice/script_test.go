package main

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/sluice-proxy/sluice/internal/host/netns"
)

// TestMain lets the test binary be the command under its two names.
func TestMain(m *testing.M) {
	command := func() { os.Exit(run(os.Args)) }
	testscript.Main(m, map[string]func(){"sluice": command, "kube-proxy": command})
}

// TestScripts runs what does not depend on the backend.
func TestScripts(t *testing.T) {
	runScripts(t, filepath.Join("testdata", "script"), map[string]string{"MODE": "nftables"})
}

// TestKernelScripts runs the scripts about rules with each backend. They find in
// $MODE the backend, in $DOMAIN how the log calls it, and in $VARIANT the variant
// of iptables that has the rules (in nftables mode, only other people's).
// $REFUSED4 and 6 match a rule that refuses connections to the sample Service, and
// $CLEANED4 and 6 what cleanup says it has removed.
func TestKernelScripts(t *testing.T) {
	for _, variant := range []string{"legacy", "nft"} {
		t.Run("iptables-"+variant, func(t *testing.T) {
			runScripts(t, filepath.Join("testdata", "script", "kernel"), map[string]string{
				"MODE": "iptables", "DOMAIN": "iptables-" + variant, "VARIANT": variant,
				"REFUSED4": `-d 172\.30\.0\.41/32 -p tcp .*-j REJECT`, "REFUSED6": `-d fd00:172:30::41/128 -p tcp .*-j REJECT`,
				"CLEANED4": `^` + variant + ` +IPv4 +[1-9]`, "CLEANED6": `^` + variant + ` +IPv6 +[1-9]`,
			})
		})
	}
	t.Run("nftables", func(t *testing.T) {
		runScripts(t, filepath.Join("testdata", "script", "kernel"), map[string]string{
			"MODE": "nftables", "DOMAIN": "nftables", "VARIANT": "nft",
			"REFUSED4": `(?s)set no-endpoints \{[^}]*172\.30\.0\.41 \. tcp \. 8[01]`, "REFUSED6": `(?s)set no-endpoints \{[^}]*fd00:172:30::41 \. tcp \. 8[01]`,
			"CLEANED4": `^ +IPv4 +removed$`, "CLEANED6": `^ +IPv6 +removed$`,
		})
	})
}

// runScripts runs the scripts of a folder. Each has a network namespace and an
// xtables lock of its own; programs that it starts by run, fails or start are
// inside. $EXAMPLES is the folder of sample manifests.
func runScripts(t *testing.T, dir string, env map[string]string) {
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
			return newBench(e)
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"api":         positive(cmdAPI),
			"events":      positive(cmdEvents),
			"run":         positive(cmdRun),
			"fails":       positive(cmdFails),
			"start":       positive(cmdStart),
			"await":       positive(cmdAwait),
			"end":         positive(cmdEnd),
			"enter":       positive(cmdEnter),
			"edit":        positive(cmdEdit),
			"remove":      positive(cmdRemove),
			"rules":       positive(cmdRules),
			"await-rules": cmdAwaitRules,
			"await-same":  positive(cmdAwaitSame),
		},
	})
}

// positive refuses the negation of a command for which it has no meaning.
func positive(cmd func(b *bench, args []string)) func(*testscript.TestScript, bool, []string) {
	return func(ts *testscript.TestScript, neg bool, args []string) {
		if neg {
			ts.Fatalf("this command cannot be negated")
		}
		cmd(benchOf(ts), args)
	}
}

// newBench gives a script its namespace.
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
	e.Values[benchKey{}] = &bench{namespace: namespace, running: make(map[string]*process)}
	return nil
}
