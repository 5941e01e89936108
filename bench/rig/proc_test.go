// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/test/testenv"
)

func TestParseStat(t *testing.T) {
	got, err := parseStat([]byte("12 (a ) b) S 1 2 3 4 5 6 7 8 9 10 150 25 50 75 20 0 1\n"))
	if err != nil || got != (CPU{2 * time.Second, time.Second}) {
		t.Errorf("%+v, %v; want 2 s and 1 s", got, err)
	}
	if _, err := parseStat([]byte("12 (a) S 1")); err == nil {
		t.Error("a line that is too short is accepted")
	}
}

// TestUsed: the CPU time of a child process counts while it runs and after it ends.
func TestUsed(t *testing.T) {
	before, err := Used(os.Getpid())
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
	running, err := Used(os.Getpid())
	if took := running.Minus(before).Sum(); err != nil || took < 2*tick {
		t.Errorf("used %+v, then %+v, %v; want the child's time in it", before, running, err)
	}
	watch := WatchMemory(os.Getpid())
	testenv.Eventually(t, "the memory is more than that of this process, with the child's", func() bool {
		alone := MiB(os.Getpid(), Resident)
		return alone > 1 && watch.Take() > alone
	})
	watch.Close()
	_ = in.Close()
	_ = cmd.Wait() // read fails at the end of the input
	if ended, err := Used(os.Getpid()); err != nil || ended.Minus(running).Sum() < -2*tick {
		t.Errorf("used %+v, and %+v after the child had ended, %v; want no less", running, ended, err)
	}
}
