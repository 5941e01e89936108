package nftables

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane/nftables/wire"
	"github.com/sluice-proxy/sluice/internal/netns"
	"github.com/sluice-proxy/sluice/service"
)

// TestTryingWhatNoKernelCan: a feature that is missing is refused, and leaves
// nothing.
func TestTryingWhatNoKernelCan(t *testing.T) {
	node, err := netns.New("node")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := node.Close(); err != nil {
			t.Error(err)
		}
	}()
	err = node.Do(func() error {
		socket, err := wire.Open()
		if err != nil {
			return err
		}
		p := &prober{d: dialects[service.IPv4], socket: socket}
		future := feature{rules: func(d *dialect) []*rule {
			return []*rule{newRule(d).expr("teleport", func(b []byte) []byte { return b })}
		}}
		if err := p.try(future); !errors.Is(err, unix.ENOENT) {
			t.Errorf("got %v, want that there is no such expression", err)
		}
		if removed, err := deleteTableOf(p); removed {
			t.Errorf("the table is left: %v", err)
		}
		return socket.Close()
	})
	if err != nil {
		t.Error(err)
	}
}

// deleteTableOf tells whether the probe's table was there.
func deleteTableOf(p *prober) (bool, error) {
	e := newEmitter(p.d)
	e.table = probeTable
	e.deleteTable()
	err := p.commit(e)
	return err == nil, err
}
