package memory

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/iptables"
	"github.com/sluice-proxy/sluice/service"
)

const twoTables = "*filter\n:ONE - [0:0]\nCOMMIT\n*nat\n:TWO - [0:0]\n-A TWO -s 10.0.0.1 -j RETURN\nCOMMIT\n"

// faulty gives a kernel on which every command has the fault.
func faulty(fault Fault) *Kernel {
	k := NewKernel(service.IPv4)
	k.SetFaults(func(Call) Fault { return fault })
	return k
}

// landed names the chains of twoTables that are there.
func landed(k *Kernel) string {
	var names []string
	for table, chain := range map[iptables.Table]string{iptables.Filter: "ONE", iptables.NAT: "TWO"} {
		if _, ok := k.Rules(table, chain); ok {
			names = append(names, chain)
		}
	}
	if len(names) == 2 {
		return "ONE TWO"
	}
	return strings.Join(names, "")
}

func TestFaults(t *testing.T) {
	tests := []struct {
		name    string
		fault   Fault
		outcome dataplane.Outcome
		line    int
		landed  string
	}{
		{"refused, naming the line", Fault{Refuse: "10.0.0.1"}, dataplane.Rejected, 6, "ONE"},
		{"refused, naming the commit", Fault{Refuse: "10.0.0.1", Blame: BlameCommit}, dataplane.Rejected, 7, "ONE"},
		{"refused, naming nobody", Fault{Refuse: "10.0.0.1", Blame: BlameNobody}, dataplane.Rejected, 0, "ONE"},
		{"refused in the first table", Fault{Refuse: ":ONE"}, dataplane.Rejected, 2, ""},
		{"busy", Fault{Outcome: dataplane.Busy}, dataplane.Busy, 0, ""},
		{"half landed", Fault{Outcome: dataplane.Rejected, Tables: 1}, dataplane.Rejected, 0, "ONE"},
		{"killed with nothing in", Fault{Outcome: dataplane.Unknown}, dataplane.Unknown, 0, ""},
		{"killed with everything in", Fault{Outcome: dataplane.Unknown, Tables: 9}, dataplane.Unknown, 0, "ONE TWO"},
		{"unsupported", Fault{Outcome: dataplane.Unsupported}, dataplane.Unsupported, 0, ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			k := faulty(test.fault)
			err := toolError(t, k.Restore(context.Background(), []byte(twoTables)))
			if err.Outcome != test.outcome || err.Line != test.line {
				t.Errorf("got %v, line %d; want %v, line %d", err.Outcome, err.Line, test.outcome, test.line)
			}
			if got := landed(k); got != test.landed {
				t.Errorf("landed %q, want %q", got, test.landed)
			}
		})
	}
}

func TestRefusalOfTextThatIsNotThereDoesNothing(t *testing.T) {
	k := faulty(Fault{Refuse: "10.0.0.2"})
	if err := k.Restore(context.Background(), []byte(twoTables)); err != nil || landed(k) != "ONE TWO" {
		t.Errorf("error %v, landed %q", err, landed(k))
	}
}

func TestFaultsOfOtherCommands(t *testing.T) {
	k := faulty(Fault{Outcome: dataplane.Busy})
	_, saveErr := k.Save(context.Background(), iptables.NAT)
	hookErr := k.EnsureHook(context.Background(), iptables.NAT, "OUTPUT", []string{"-j", "ACCEPT"})
	for name, err := range map[string]error{"save": saveErr, "hook": hookErr} {
		if got := toolError(t, err).Outcome; got != dataplane.Busy {
			t.Errorf("%s: got %v, want busy", name, got)
		}
	}
	if got := rulesOf(k, iptables.NAT, "OUTPUT"); got != "" {
		t.Errorf("the hook landed: %s", got)
	}
}

func TestFaultsSeeTheCall(t *testing.T) {
	k := NewKernel(service.IPv6)
	var calls []Call
	k.SetFaults(func(c Call) Fault {
		calls = append(calls, c)
		return Fault{}
	})
	if err := k.Restore(context.Background(), []byte(twoTables[:0])); err != nil {
		t.Fatal(err)
	}
	if _, err := k.Save(context.Background(), iptables.Mangle); err != nil {
		t.Fatal(err)
	}
	if len(calls) != 2 || calls[0].Command != "ip6tables-restore" || calls[1].Command != "ip6tables-save" || calls[1].Table != iptables.Mangle {
		t.Errorf("got %+v", calls)
	}
}

func TestSlowRestoreLandsInTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := NewKernel(service.IPv4)
		k.SetFaults(func(Call) Fault { return Fault{Wait: time.After(time.Minute)} })
		start := time.Now()
		if err := k.Restore(context.Background(), []byte(twoTables)); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took != time.Minute || landed(k) != "ONE TWO" {
			t.Errorf("took %v, landed %q", took, landed(k))
		}
	})
}

func TestContextEndsASlowRestore(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	k := faulty(Fault{Wait: make(chan time.Time)})
	err := toolError(t, k.Restore(ctx, []byte(twoTables)))
	if err.Outcome != dataplane.Unknown || !errors.Is(err, context.Canceled) || landed(k) != "" {
		t.Errorf("got %v (%v), landed %q", err.Outcome, err, landed(k))
	}
}
