package main

import (
	"os"
	"os/exec"
	"slices"
	"testing"

	"github.com/sluice-proxy/sluice/bench/result"
)

func TestParseStat(t *testing.T) {
	got, err := parseStat([]byte("12 (a ) b) S 1 2 3 4 5 6 7 8 9 10 150 25 50 75 20 0 1\n"))
	if err != nil || got != (processorTime{2, 1}) {
		t.Errorf("%+v, %v; want 2 s and 1 s", got, err)
	}
	if _, err := parseStat([]byte("12 (a) S 1")); err == nil {
		t.Error("a line that is too short is taken")
	}
}

// Children count while they run and when they have ended.
func TestUsedBy(t *testing.T) {
	before, err := usedBy(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", "-c", "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; echo done; read x")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
	running, err := usedBy(os.Getpid())
	if err != nil || running.minus(before).sum() < 0.02 {
		t.Errorf("used %+v, then %+v, %v; want the child's time in it", before, running, err)
	}
	if alone, both := residentKiB(os.Getpid()), withChildrenKiB(os.Getpid()); alone < 1000 || both <= alone {
		t.Errorf("%d KiB alone, %d KiB with a child", alone, both)
	}
	_ = in.Close()
	_ = cmd.Wait() // read fails at the end of the input
	if ended, err := usedBy(os.Getpid()); err != nil || ended.minus(running).sum() < -0.02 {
		t.Errorf("used %+v, and %+v after the child had ended, %v; want no less", running, ended, err)
	}
}

// The page finds the steps by these names.
func TestChurnStepsHaveTheirNames(t *testing.T) {
	var names []string
	for _, rate := range rates {
		names = append(names, churnStep(rate))
	}
	if !slices.Equal(names, result.ChurnSteps) {
		t.Errorf("steps %q, the page looks for %q", names, result.ChurnSteps)
	}
}

func TestParse(t *testing.T) {
	o, err := parse([]string{"-n", "200", "-minutes", "1", "-steps", "churn,cold,restart", "-mode", "iptables", "-variant", "legacy"})
	if err != nil {
		t.Fatal(err)
	}
	if want := "make bench-compare N=200 MODE=iptables VARIANT=legacy MINUTES=1 STEPS=restart,churn"; o.command() != want {
		t.Errorf("command %q, want %q", o.command(), want)
	}
	for _, words := range [][]string{
		{"-n", "3"}, {"-mode", "ipvs"}, {"-steps", "dance"}, {"-variant", "nft"}, {"-minutes", "0"}, {"more"},
	} {
		if _, err := parse(words); err == nil {
			t.Errorf("%q is taken", words)
		}
	}
}
