package harness

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"
)

// Ports of every Service and every pod in these tests, the same over TCP and UDP.
const (
	// ServicePort is where a Service answers on its cluster IPs.
	ServicePort = 80
	// BackendPort is where a pod answers.
	BackendPort = 8080
)

// Target is one address of a Service, over one protocol.
type Target struct {
	Network string // tcp or udp
	Addr    netip.AddrPort
}

func (t Target) String() string { return t.Network + " " + t.Addr.String() }

// targets returns each address over both protocols.
func targets(addrs ...netip.AddrPort) []Target {
	var all []Target
	for _, addr := range addrs {
		all = append(all, Target{"tcp", addr}, Target{"udp", addr})
	}
	return all
}

// Backends returns where a pod itself answers.
func (h *Host) Backends() []Target {
	return targets(netip.AddrPortFrom(h.V4, BackendPort), netip.AddrPortFrom(h.V6, BackendPort))
}

const (
	// quickMax bounds a question of a test that asks again and again until the answer is right. Any answer
	// takes a millisecond; waiting longer would only measure how late a lost first packet is sent again.
	quickMax = 300 * time.Millisecond
	// patientMax bounds a question of a client that counts losses.
	patientMax = 3 * time.Second
)

// Reach asks the target from a host, each time on a new connection, until every wanted pod has answered,
// and at least ten times. Another answer is an error, and so is a pod that stays silent: each pod gets
// twenty questions on average, which a fair choice misses once in millions of tests.
func (h *Host) Reach(ctx context.Context, target Target, want ...*Host) error {
	names := make([]string, len(want))
	for i, pod := range want {
		names[i] = pod.Name()
	}
	missing := slices.Clone(names)
	for asked := 0; asked < 10 || len(missing) > 0; asked++ {
		if asked == 20*max(len(want), 1) {
			return fmt.Errorf("%s to %s: %v never answered in %d questions", h.Name(), target, missing, asked)
		}
		got, err := h.ask(ctx, target, quickMax)
		if err != nil {
			return err
		}
		if !slices.Contains(names, got) {
			return fmt.Errorf("%s to %s: %s answered, want only %v", h.Name(), target, got, names)
		}
		missing = slices.DeleteFunc(missing, func(name string) bool { return name == got })
	}
	return nil
}

// Unreachable returns an error when somebody answers at the target. Silence counts as nobody.
func (h *Host) Unreachable(ctx context.Context, target Target) error {
	got, err := h.ask(ctx, target, quickMax)
	if err == nil {
		return fmt.Errorf("%s to %s: %s answered, want nobody", h.Name(), target, got)
	}
	return ctx.Err() // nil, unless the question was cut short
}

// WhoAnswers asks the target once, on a new connection, and returns the name of the pod that answers.
func (h *Host) WhoAnswers(ctx context.Context, target Target) (string, error) {
	return h.ask(ctx, target, patientMax)
}

func (h *Host) ask(ctx context.Context, target Target, limit time.Duration) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	answer, err := h.Ask(ctx, target.Network, target.Addr)
	return answer.Backend, err
}
