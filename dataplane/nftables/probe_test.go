package nftables

import (
	"errors"
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane/nftables/wire"
	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/service"
)

// TestTryingWhatNoKernelCan: the kernel refuses a missing feature, and nothing is left.
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

// deleteTableOf reports whether the probe's table existed.
func deleteTableOf(p *prober) (bool, error) {
	e := newEmitter(p.d)
	e.table = probeTable
	e.deleteTable()
	err := p.commit(e)
	return err == nil, err
}

// TestKernelWithoutNetfilter: a kernel without such a socket lacks something. It is not a
// failure that may pass.
func TestKernelWithoutNetfilter(t *testing.T) {
	lacking := fmt.Errorf("open a netlink socket: %w", unix.EPROTONOSUPPORT)
	_, err := Probe(service.IPv6, func(func() error) error { return lacking })
	missing, ok := errors.AsType[*MissingError](err)
	if !ok || missing.Family != service.IPv6 || !errors.Is(err, unix.EPROTONOSUPPORT) {
		t.Errorf("got %v, want that the kernel lacks something for IPv6", err)
	}
	if _, err := Probe(service.IPv6, func(func() error) error { return unix.EMFILE }); !errors.Is(err, unix.EMFILE) {
		t.Errorf("got %v, want too many open files", err)
	} else if _, ok := errors.AsType[*MissingError](err); ok {
		t.Error("too many open files are taken for a kernel that lacks something")
	}
}
