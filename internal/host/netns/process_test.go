package netns

import (
	"os/exec"
	"strings"
	"testing"
)

func TestChildrenRunInside(t *testing.T) {
	n := newNamespace(t, "n")
	want, err := n.Output(exec.Command("readlink", threadNamespace))
	if err != nil {
		t.Fatal(err)
	}
	outside, err := exec.Command("readlink", threadNamespace).Output()
	if err != nil {
		t.Fatal(err)
	}
	if string(want) == string(outside) {
		t.Fatalf("Output ran in the namespace outside, %s", outside)
	}

	var run, start strings.Builder
	ran := exec.Command("readlink", threadNamespace)
	ran.Stdout = &run
	if err := n.Run(ran); err != nil {
		t.Fatal(err)
	}
	started := exec.Command("readlink", threadNamespace)
	started.Stdout = &start
	if err := n.Start(started); err != nil {
		t.Fatal(err)
	}
	if err := started.Wait(); err != nil {
		t.Fatal(err)
	}
	if run.String() != string(want) || start.String() != string(want) {
		t.Errorf("Run in %q, Start in %q, want both in %q", run.String(), start.String(), want)
	}
}

func TestRunReportsTheChildsFailure(t *testing.T) {
	n := newNamespace(t, "n")
	if err := n.Run(exec.Command("false")); err == nil {
		t.Error("Run(false) = nil, want its exit status")
	}
	if err := n.Start(exec.Command("/does/not/exist")); err == nil {
		t.Error("Start of a missing program = nil, want an error")
	}
}
