package conformance

import (
	"context"
	"testing"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/iptables"
	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/service"
)

// insideTool runs the commands of a tool inside a network namespace.
type insideTool struct {
	namespace *netns.Namespace
	tool      iptables.Tool
}

func (i insideTool) Restore(ctx context.Context, input []byte) error {
	return i.namespace.Do(func() error { return i.tool.Restore(ctx, input) })
}

func (i insideTool) Save(ctx context.Context, table iptables.Table) ([]byte, error) {
	var saved []byte
	err := i.namespace.Do(func() error {
		var err error
		saved, err = i.tool.Save(ctx, table)
		return err
	})
	return saved, err
}

func (i insideTool) EnsureHook(ctx context.Context, table iptables.Table, chain string, rule []string) error {
	return i.namespace.Do(func() error { return i.tool.EnsureHook(ctx, table, chain, rule) })
}

func (i insideTool) RemoveHook(ctx context.Context, table iptables.Table, chain string, rule []string) error {
	return i.namespace.Do(func() error { return i.tool.RemoveHook(ctx, table, chain, rule) })
}

// kernelHarness is the iptables backend with the real programs of a variant, on
// a node of network namespaces. Writers use the tool that wrap makes of the real one.
func kernelHarness(family service.Family, variant iptables.Variant, wrap func(iptables.Tool) iptables.Tool) Harness {
	return iptablesHarness(family, func(t *testing.T, world Fixture) Node {
		t.Helper()
		programs, err := iptables.NewExec(t.Context(), iptables.ExecConfig{Family: family, Variant: variant})
		if err != nil {
			t.Fatalf("install the Debian package iptables: %v", err)
		}
		network := NewNetwork(t, world)
		tool := wrap(insideTool{network.Node(), programs})
		return Node{
			NewWriter: func() dataplane.Writer {
				return iptables.NewWriter(family, tool, iptables.WriterConfig{})
			},
			Probe:   network,
			Meddler: iptablesMeddler{tool: tool, family: family},
		}
	})
}

func asItIs(tool iptables.Tool) iptables.Tool { return tool }

func TestIptablesOnKernel(t *testing.T) {
	for _, variant := range []iptables.Variant{iptables.Legacy, iptables.NFT} {
		for _, family := range service.Families {
			t.Run(string(variant)+"/"+family.String(), func(t *testing.T) { Run(t, kernelHarness(family, variant, asItIs)) })
		}
	}
}
