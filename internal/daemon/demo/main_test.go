package demo

import (
	"context"
	"fmt"
	"os"
	"testing"

	"go.uber.org/zap"

	proxy "github.com/sluice-proxy/sluice"
	"github.com/sluice-proxy/sluice/internal/daemon/backend"
	"github.com/sluice-proxy/sluice/internal/daemon/config"
	"github.com/sluice-proxy/sluice/internal/host/sandbox"
)

// TestMain lets the test binary be the demo: called with "tell" and a mode, it
// tells the story in a sandbox.
func TestMain(m *testing.M) {
	if len(os.Args) != 3 || os.Args[1] != "tell" {
		os.Exit(m.Run())
	}
	status, err := tell(config.Mode(os.Args[2]))
	if err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		status = 1
	}
	os.Exit(status)
}

func tell(mode config.Mode) (status int, err error) {
	if !sandbox.Inside() {
		return sandbox.Run()
	}
	if err := sandbox.Enter(); err != nil {
		return 1, err
	}
	return 0, Tell(context.Background(), os.Stdout, zap.NewNop(), func(ctx context.Context, log *zap.Logger) ([]proxy.Domain, error) {
		_, domains, err := backend.Build(mode, nil, backend.Builders{
			NFTables: func() ([]proxy.Domain, error) {
				return backend.NFTables(ctx, backend.NFTablesOptions{MasqueradeBit: 14, Log: log})
			},
			IPTables: func() ([]proxy.Domain, error) {
				return backend.IPTables(ctx, backend.IPTablesOptions{Variant: "auto", MasqueradeBit: 14, Log: log})
			},
		})
		return domains, err
	})
}
