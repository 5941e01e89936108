package backend

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/sluice-proxy/sluice/dataplane/nftables"
	"github.com/sluice-proxy/sluice/internal/host/sysctl"
	"github.com/sluice-proxy/sluice/service"
)

func TestHasFamily(t *testing.T) {
	files := sysctl.Files{Root: t.TempDir()} // a kernel without IPv6
	if err := hasFamily(service.IPv4, files); err != nil {
		t.Errorf("IPv4: %v", err)
	}
	missing, ok := errors.AsType[*nftables.MissingError](hasFamily(service.IPv6, files))
	if !ok || missing.Family != service.IPv6 || missing.Need == "" {
		t.Errorf("IPv6 without: %+v", missing)
	}
	at := filepath.Join(files.Root, "proc/thread-self/net/if_inet6")
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(at, []byte("address\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := hasFamily(service.IPv6, files); err != nil {
		t.Errorf("IPv6: %v", err)
	}
}
