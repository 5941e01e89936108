package genl

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/service"
)

func TestRefusalText(t *testing.T) {
	f, addr := frontend("10.96.0.1", 80, service.TCP), netip.MustParseAddrPort("10.0.0.2:8080")
	for _, tt := range []struct {
		refusal         Refusal
		want            string
		exists, missing bool
	}{
		{Refusal{NewService(Service{Frontend: f}), unix.EEXIST, ""}, "add virtual server 10.96.0.1:80/tcp: it exists already", true, false},
		{Refusal{NewService(Service{Frontend: f, Scheduler: "x"}), unix.ENOENT, ""}, `add virtual server 10.96.0.1:80/tcp: no scheduler "x" (kernel module ip_vs_x)`, false, false},
		{Refusal{DelService(f), unix.ESRCH, ""}, "delete virtual server 10.96.0.1:80/tcp: no such virtual server", false, true},
		{Refusal{DelDest(f, addr), unix.ENOENT, ""}, "delete real server 10.0.0.2:8080 of 10.96.0.1:80/tcp: no such real server", false, true},
		{Refusal{DelDest(f, addr), unix.EPERM, "not you"}, "delete real server 10.0.0.2:8080 of 10.96.0.1:80/tcp: operation not permitted (not you)", false, false},
	} {
		err := error(&tt.refusal)
		if got := err.Error(); got != tt.want {
			t.Errorf("got %q, want %q", got, tt.want)
		}
		wrapped := fmt.Errorf("elsewhere: %w", err)
		if Exists(wrapped) != tt.exists || Missing(wrapped) != tt.missing || !errors.Is(wrapped, tt.refusal.Errno) {
			t.Errorf("%v: exists %v, missing %v", err, Exists(wrapped), Missing(wrapped))
		}
	}
}
