package iptables

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
)

func TestRestoreIsKilledWithItsContext(t *testing.T) {
	folder := t.TempDir()
	for name, script := range map[string]string{
		"iptables-nft":         "echo 'iptables v1.8.9 (nf_tables)'",
		"iptables-nft-save":    "exit 0",
		"iptables-nft-restore": "exec sleep 60",
	} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", folder+":"+os.Getenv("PATH"))
	tool, err := NewExec(t.Context(), ExecConfig{Variant: NFT})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	start := time.Now()
	err = tool.Restore(ctx, []byte("*nat\nCOMMIT\n"))
	toolErr, ok := errors.AsType[*ToolError](err)
	if !ok || toolErr.Outcome != dataplane.Unknown || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want an unknown outcome", err)
	}
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("took %v", took)
	}
}
