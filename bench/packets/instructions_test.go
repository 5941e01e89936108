package main

import (
	"path/filepath"
	"strings"
	"testing"

	benchresult "github.com/sluice-proxy/sluice/bench/result"
)

// Each proxy also gets a room with policies, and what a run stores has the names of the page.
func TestInstructions(t *testing.T) {
	o := options{variants: []variant{{name: kubeProxy, program: "/bin/true"}, {name: "sluice", program: "p"}, {name: none}}, services: []int{12}, rounds: 1}
	o.families = small().families
	o.countInstructions()
	var names string
	for _, v := range o.variants {
		names += v.name + " "
	}
	if want := "kube-proxy sluice none kube-proxy+policies sluice+policies direct "; names != want {
		t.Errorf("variants %q, want %q", names, want)
	}
	results := []result{
		{Case: "tcp-cluster-ip", Variant: "sluice", Rounds: 1, Microseconds: 90.0004}, {Case: "tcp-cluster-ip", Variant: offload, Rounds: 1, Microseconds: 99},
		{Case: "tcp-pod", Variant: direct, Rounds: 1, Microseconds: 60}, {Case: "tcp-cluster-ip", Variant: offload + withPolicies},
	}
	file := filepath.Join(t.TempDir(), "r.json")
	if err := o.record(t.Context(), results, file); err != nil {
		t.Fatal(err)
	}
	r, err := benchresult.ReadRecord(file)
	if err != nil || r.Kind != "instructions" {
		t.Fatalf("stored %+v, %v", r, err)
	}
	stored := string(r.Data)
	for _, v := range []string{benchresult.Sluice, benchresult.Offload, benchresult.Direct} {
		if !strings.Contains(stored, `"`+v+`"`) {
			t.Errorf("nothing of %s in %s", v, stored)
		}
	}
}
