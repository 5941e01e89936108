// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane/nftables/render"
	"github.com/sluice-proxy/sluice/dataplane/nftables/rules"
	"github.com/sluice-proxy/sluice/dataplane/nftables/wire"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/netnstest"
)

// TestProbe_ImpossibleFeature: the kernel rejects an unknown feature, and the probe leaves nothing.
func TestProbe_ImpossibleFeature(t *testing.T) {
	node := netnstest.New(t, "node")
	err := node.Do(func() error {
		socket, err := wire.Open()
		if err != nil {
			return err
		}
		p := &prober{d: &rules.Headers[service.IPv4], socket: socket}
		future := render.Feature{Chain: rules.Chain{
			Name: "probe", Rules: []rules.Rule{{Exprs: []rules.Expr{&rules.Unknown{Name: "teleport"}}}},
		}}
		if err := p.try(future); !errors.Is(err, unix.ENOENT) {
			t.Errorf("got %v, want that there is no such expression", err)
		}
		if removed, err := deleteTable(socket, p.d, probeTable); removed {
			t.Errorf("the table is left: %v", err)
		}
		return socket.Close()
	})
	if err != nil {
		t.Error(err)
	}
}

// TestKernelProbe_WithoutNetfilter: a kernel without netfilter sockets is reported as a missing feature, and a lack of
// file descriptors, which may pass, is not.
func TestKernelProbe_WithoutNetfilter(t *testing.T) {
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

// without is a socket of a kernel that rejects each transaction from the given one on.
type without struct {
	Socket
	from    int
	errno   unix.Errno
	commits int
}

func (s *without) Commit(*wire.Transaction) ([]*wire.Rejection, error) {
	if s.commits++; s.commits <= s.from {
		return nil, nil
	}
	return []*wire.Rejection{{Errno: s.errno}}, nil
}

// TestProbe_WithoutTablesSaysOneLine: a kernel without nf_tables is reported in one line, and otherwise each missing
// feature is named.
func TestProbe_WithoutTablesSaysOneLine(t *testing.T) {
	for _, family := range service.Families {
		features := render.Features(family)
		for landed, lines := range map[int]int{0: 1, 1: len(features) - 1, len(features): 0} {
			socket := &without{from: landed, errno: unix.EOPNOTSUPP}
			err := (&prober{d: &rules.Headers[family], socket: socket}).check()
			text := ""
			if err != nil {
				text = err.Error()
			}
			if got := strings.Count(text, "is not usable for"); got != lines {
				t.Errorf("%s, %d features: %d lines, want %d: %s", family, landed, got, lines, text)
			}
			if landed == 0 && (socket.commits != 1 || !strings.Contains(text, "nf_tables for the family") || !errors.Is(err, unix.EOPNOTSUPP)) {
				t.Errorf("%s: after %d tries: %s", family, socket.commits, text)
			}
		}
		denied := &without{errno: unix.EPERM}
		err := (&prober{d: &rules.Headers[family], socket: denied}).check()
		if _, lacks := errors.AsType[*MissingError](err); lacks || !errors.Is(err, unix.EPERM) {
			t.Errorf("%s: %v is taken for a kernel that lacks something", family, err)
		}
	}
}

// TestProbe_HashingIsSeparate: hashing is no required feature. A kernel without it has all that other Services need.
func TestProbe_HashingIsSeparate(t *testing.T) {
	for _, family := range service.Families {
		for _, f := range render.Features(family) {
			for _, r := range f.Chain.Rules {
				for _, e := range r.Exprs {
					if _, hashes := e.(*rules.Hash); hashes {
						t.Errorf("%s: %s hashes", family, f.Name)
					}
				}
			}
		}
		p := &prober{d: &rules.Headers[family], socket: &without{errno: unix.ENOENT}}
		missing, ok := errors.AsType[*MissingError](p.each(render.Hashing(family)))
		if !ok || missing.Need != "CONFIG_NFT_HASH" || missing.Family != family {
			t.Errorf("%s: without hashing: %v", family, missing)
		}
	}
}
