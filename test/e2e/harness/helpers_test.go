package harness

import (
	"testing"

	"github.com/sluice-proxy/sluice/internal/host/netns"
)

func newNamespace(t *testing.T, name string) *netns.Namespace {
	t.Helper()
	n, err := netns.New(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	return n
}
