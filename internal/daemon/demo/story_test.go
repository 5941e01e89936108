package demo

import (
	"context"
	"strings"
	"testing"
	"time"

	proxy "github.com/sluice-proxy/sluice"
)

func TestStandsAt(t *testing.T) {
	const stack = `1 @ 0x47a2ee 0x409b57
# labels: {"sluice-child":"demo/echo", "sluice-incarnation":"4"}
#	0x70e904	runtime.gopark+0x44	/go/src/runtime/proc.go:461
#	0x93ee1b	github.com/sluice-proxy/sluice/internal/daemon/demo.(*chaos).intercept+0x5b	/src/internal/demo/chaos.go:47
#	0x8d1d42	github.com/sluice-proxy/sluice/actors.(*actor).run+0x282	/src/actors/actor.go:90`
	for stack, want := range map[string]string{
		stack: "demo.(*chaos).intercept at chaos.go:47",
		"stack not available: the goroutine has returned": "not captured",
	} {
		if got := standsAt(stack); got != want {
			t.Errorf("standsAt(%q) = %q, want %q", stack, got, want)
		}
	}
}

func TestAwaitAppliedNamesWhatIsMissing(t *testing.T) {
	s := &story{witness: newWitness()}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	s.domains = make([]proxy.Domain, 2)
	began := time.Now()
	appliedAt(s.witness, "one", began)
	_, err := s.awaitApplied(ctx, "the rules", time.Time{}, echo)
	if err == nil || !strings.Contains(err.Error(), "in vain for: the rules") {
		t.Errorf("got %v", err)
	}
	appliedAt(s.witness, "two", began.Add(time.Second))
	last, err := s.awaitApplied(ctx, "the rules", time.Time{}, echo)
	if err != nil || !last.At.Equal(began.Add(time.Second)) {
		t.Errorf("got %v, %v; want the later of the two", last, err)
	}
}
