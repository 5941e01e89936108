// SPDX-License-Identifier: Apache-2.0

package kernel_test

import (
	"bytes"
	"context"
	"errors"
	"net/netip"
	"testing"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/iptables/kernel"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/testenv"
	"github.com/sluice-proxy/sluice/test/writertest"
)

// interruptedTool ends a restore after some of its tables, while it is armed.
type interruptedTool struct {
	kernel.Tool
	armed  bool
	tables int
}

// Restore implements [iptables.Tool].
func (i *interruptedTool) Restore(ctx context.Context, input []byte) error {
	if !i.armed {
		return i.Tool.Restore(ctx, input)
	}
	const end = "COMMIT\n"
	sections := bytes.SplitAfter(input, []byte(end))
	if landed := bytes.Join(sections[:min(i.tables, len(sections)-1)], nil); len(landed) > 0 {
		if err := i.Tool.Restore(ctx, landed); err != nil {
			return err
		}
	}
	return &kernel.ToolError{Outcome: dataplane.Unknown, Command: "iptables-restore", Err: errors.New("interrupted")}
}

// TestRestore_InterruptedLetsNothingThrough ends restores after each number of tables. Packets to a Service that exists
// before and after are then answered, rejected or dropped, and the next attempt completes the write.
func TestRestore_InterruptedLetsNothingThrough(t *testing.T) {
	for _, variant := range testenv.Variants(kernel.NFT, kernel.Legacy) {
		t.Run(string(variant), func(t *testing.T) {
			t.Parallel()
			tool := &interruptedTool{}
			s := writertest.OpenScene(t, harness(service.IPv4, variant, func(inner kernel.Tool) kernel.Tool {
				tool.Tool = inner
				return tool
			}))
			interruptRestores(t, s, tool)
		})
	}
}

func interruptRestores(t *testing.T, s *writertest.Scene, tool *interruptedTool) {
	const tablesMax = 5 // more than any input has
	states := [][]netip.Addr{{}, {s.A}, {s.B}, {s.A, s.B}, {}, {s.A, s.C}}
	for tool.tables = range tablesMax {
		for i, endpoints := range states {
			spec := s.Exposed()
			spec.ExternalLocal, spec.InternalLocal = i%2 == 0, i%3 == 0
			s.Serve(spec, s.Slice(endpoints...))
			if i > 0 { // the first state is that of a new Service
				tool.armed = true
				if got := s.Write(t.Context(), t, s.Plan()); got.Outcome != dataplane.Unknown {
					t.Errorf("after %d tables: got %v, want %v", tool.tables, got, dataplane.Unknown)
				}
				tool.armed = false
				s.ExpectFates(s.Questions(), writertest.Answered, writertest.Refused, writertest.Silent)
				s.Await()
			}
			s.Converge(t)
			s.ExpectEqual("after the next attempt")
		}
		s.Forget(s.Spec().Key)
		s.Converge(t)
	}
}
