package nftables

import (
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane/nftables/rules"
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
			return []*rule{newRule(d).expr(&rules.Unknown{Name: "teleport"})}
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
	err := Probe(service.IPv6, func(func() error) error { return lacking })
	missing, ok := errors.AsType[*MissingError](err)
	if !ok || missing.Family != service.IPv6 || !errors.Is(err, unix.EPROTONOSUPPORT) {
		t.Errorf("got %v, want that the kernel lacks something for IPv6", err)
	}
	if err := Probe(service.IPv6, func(func() error) error { return unix.EMFILE }); !errors.Is(err, unix.EMFILE) {
		t.Errorf("got %v, want too many open files", err)
	} else if _, ok := errors.AsType[*MissingError](err); ok {
		t.Error("too many open files are taken for a kernel that lacks something")
	}
}

// without is a socket of a kernel that refuses each transaction from the given one on.
type without struct {
	Socket
	from    int
	errno   unix.Errno
	commits int
}

func (s *without) Commit(*wire.Transaction) ([]*wire.Refusal, error) {
	if s.commits++; s.commits <= s.from {
		return nil, nil
	}
	return []*wire.Refusal{{Errno: s.errno}}, nil
}

// TestWithoutTablesOneLineSaysIt: the other features would be missing too. Without one of these,
// each is named.
func TestWithoutTablesOneLineSaysIt(t *testing.T) {
	for _, family := range service.Families {
		for landed, lines := range map[int]int{0: 1, 1: len(features) - 1, len(features): 0} {
			socket := &without{from: landed, errno: unix.EOPNOTSUPP}
			err := (&prober{d: dialects[family], socket: socket}).check()
			text := ""
			if err != nil {
				text = err.Error()
			}
			if got := strings.Count(text, "cannot be used"); got != lines {
				t.Errorf("%s, %d features: %d lines, want %d: %s", family, landed, got, lines, text)
			}
			if landed == 0 && (socket.commits != 1 || !strings.Contains(text, "nf_tables for the family") || !errors.Is(err, unix.EOPNOTSUPP)) {
				t.Errorf("%s: after %d tries: %s", family, socket.commits, text)
			}
		}
		denied := &without{errno: unix.EPERM}
		err := (&prober{d: dialects[family], socket: denied}).check()
		if _, lacks := errors.AsType[*MissingError](err); lacks || !errors.Is(err, unix.EPERM) {
			t.Errorf("%s: %v is taken for a kernel that lacks something", family, err)
		}
	}
}

// stepwise is a socket that calls between before each transaction but the first.
type stepwise struct {
	Socket
	commits int
	between func()
}

func (s *stepwise) Commit(t *wire.Transaction) ([]*wire.Refusal, error) {
	if s.commits++; s.commits > 1 {
		s.between()
	}
	return s.Socket.Commit(t)
}

// TestATableGoesInTwoSteps: first its rules, then the rest. In one step, 15 of 3.5 million first
// packets failed while a table went 958 times and another backend served.
func TestATableGoesInTwoSteps(t *testing.T) {
	node, err := netns.New("node")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := node.Close(); err != nil {
			t.Error(err)
		}
	})
	load := exec.Command("nft", "-f", "-")
	load.Stdin = strings.NewReader(`table ip kube-proxy {
		chain cluster-ips-check { reject; }
		chain services { ip daddr 172.30.0.1 accept; }
		chain nat-prerouting { type nat hook prerouting priority -100; jump services; goto cluster-ips-check; }
	}`)
	if err := node.Run(load); err != nil {
		t.Fatal(err)
	}
	list := func() string {
		text, err := node.Output(exec.Command("nft", "list", "ruleset"))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	err = node.Do(func() error {
		socket, err := wire.Open()
		if err != nil {
			return err
		}
		s := &stepwise{Socket: socket, between: func() {
			if text := list(); strings.Contains(text, "goto") || strings.Contains(text, "172.30.0.1") || !strings.Contains(text, "hook") {
				t.Errorf("between the steps:\n%s", text)
			}
		}}
		removed, err := retireTable(s, dialects[service.IPv4])
		if !removed || err != nil || s.commits != 2 {
			t.Errorf("removed %v, %v, in %d steps", removed, err, s.commits)
		}
		if removed, err := retireTable(socket, dialects[service.IPv4]); removed || err != nil {
			t.Errorf("without a table: removed %v, %v", removed, err)
		}
		return socket.Close()
	})
	if err != nil {
		t.Fatal(err)
	}
	if text := list(); text != "" {
		t.Errorf("left:\n%s", text)
	}
}
