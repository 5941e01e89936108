// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/sluice-proxy/sluice/internal/inspect"
	"github.com/sluice-proxy/sluice/test/terminaltest"
)

// TestTerminal_NodesCannotForgeOutput: a compromised node can neither move the cursor of the user's terminal nor add
// rows about other nodes.
func TestTerminal_NodesCannotForgeOutput(t *testing.T) {
	outputs := func(text string) (all map[string]string) {
		s, all := newStand(t, 2), map[string]string{}
		bad := s.nodes[1]
		bad.status = func(s *inspect.Status) {
			lag, changes := s.Activity.Lag.Counts, s.Activity.Changes.Counts
			terminaltest.Fill(s, text)
			s.Activity.Lag.Counts, s.Activity.Changes.Counts = lag, changes
		}
		bad.detail = func(d *inspect.ServiceDetail) { terminaltest.Fill(d, text) }
		bad.items = make([]inspect.TopItem, 1)
		terminaltest.Fill(&bad.items[0], text)
		bad.stream = func(ctx context.Context, each func(*inspect.FlowEvent) error) error {
			var record inspect.FlowEvent
			terminaltest.Fill(&record, text)
			record.Omitted = 0
			return errors.Join(each(&record), flowOn("the-last")(ctx, each))
		}
		for _, format := range []string{"wide", "json"} {
			all["observe "+format] = s.observe(t, []string{"the-last"}, "--node", "node-0001", "-o", format)
		}
		for _, command := range [][]string{
			{"status"}, {"status", "-o", "wide"}, {"status", "-o", "json"}, {"where", "svc/web"}, {"where", "svc/web", "-o", "wide"}, {"top", "services"},
			{"diff", "node-0000", "node-0001"}, {"wait", "svc/web", "--timeout", "2s"}, {"wait", "--gone", "10.244.0.1", "--timeout", "2s"},
		} {
			out, err := s.run(t, command...)
			all[fmt.Sprint(command)] = out
			if err != nil {
				all[fmt.Sprint(command, " error")] = err.Error()
			}
		}
		return all
	}
	hostile, harmless := outputs(terminaltest.Hostile), outputs("x")
	for command, out := range hostile {
		t.Run(command, func(t *testing.T) { terminaltest.Check(t, out, harmless[command]) })
	}
	if len(hostile) < 11 {
		t.Errorf("only %d outputs", len(hostile))
	}
}
