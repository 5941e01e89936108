// SPDX-License-Identifier: Apache-2.0

package kernel_test

import (
	"context"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane/nftables/kernel"
	"github.com/sluice-proxy/sluice/dataplane/nftables/wire"
	"github.com/sluice-proxy/sluice/internal/netlink"
	"github.com/sluice-proxy/sluice/service"
)

// asking is a socket that counts the questions by kind.
type asking struct {
	*wire.Socket
	asked map[uint16]int
}

// Ask is for kernel.Socket.
func (a asking) Ask(ctx context.Context, kind uint16, family uint8, all bool, attrs []byte, each func(netlink.Netfilter)) error {
	a.asked[kind]++
	return a.Socket.Ask(ctx, kind, family, all, attrs, each)
}

// asks returns a configuration whose questions are counted.
func asks() (kernel.WriterConfig, map[uint16]int) {
	asked := map[uint16]int{}
	return kernel.WriterConfig{Open: func() (kernel.Socket, error) {
		socket, err := wire.Open()
		return asking{socket, asked}, err
	}}, asked
}

// TestReadAhead: a read-ahead counts as long as no transaction landed since, on any table.
func TestReadAhead(t *testing.T) {
	w := newWorld(t, service.IPv4, kernel.WriterConfig{})
	w.fill(20, 3)
	w.commit()
	readAhead := func() map[uint16]int {
		config, asked := asks()
		w.use(config)
		w.writer.ReadAhead(t.Context())
		clear(asked)
		return asked
	}

	asked := readAhead()
	if drift := w.audit(); drift.Any() || drift.Equal < 20*4 {
		t.Errorf("nothing changed: %+v", drift)
	}
	if len(asked) != 1 || asked[unix.NFT_MSG_GETGEN] != 1 {
		t.Errorf("the read asked %v, want the generation once", asked)
	}
	if drift := w.audit(); drift.Any() || asked[unix.NFT_MSG_GETSETELEM] == 0 {
		t.Errorf("the next read asked %v, want all: %+v", asked, drift)
	}

	for name, change := range map[string]struct {
		commands        string
		missing, excess int
	}{
		"an element goes": {"delete element " + w.table() + " ${frontends} { 172.16.0.7 . tcp . 80 }", 1, 0},
		"a chain comes":   {"add chain " + w.table() + " stranger", 0, 1},
		"another table":   {"add table ip6 stranger", 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			asked := readAhead()
			w.nft(change.commands, "-f", "-")
			drift := w.audit()
			if drift.Missing != change.missing || drift.Unwanted != change.excess || drift.Different != 0 {
				t.Errorf("found %+v, want %d missing and %d unwanted", drift, change.missing, change.excess)
			}
			if asked[unix.NFT_MSG_GETSETELEM] == 0 {
				t.Errorf("the read asked %v, want all", asked)
			}
			w.commit()
		})
	}
}

// TestReadAhead_Nothing: without a table, reading ahead and reading return nothing and ask for no elements.
func TestReadAhead_Nothing(t *testing.T) {
	config, asked := asks()
	w := newWorld(t, service.IPv4, config)
	w.writer.ReadAhead(t.Context())
	if objects := w.read(); len(objects) > 0 || asked[unix.NFT_MSG_GETSETELEM] > 0 {
		t.Errorf("read %d objects by %v, want none", len(objects), asked)
	}
}

// TestRead_AllocatesByPiece: reading allocates for each piece of a list that the kernel sends, not for each element.
func TestRead_AllocatesByPiece(t *testing.T) {
	w := newWorld(t, service.IPv4, kernel.WriterConfig{})
	read := func(services int) (objects int, allocated float64) {
		w.fill(services, 10)
		w.commit()
		return len(w.read()), testing.AllocsPerRun(3, func() { w.read() })
	}
	few, allocatedForFew := read(500)
	many, allocated := read(2500)
	if each := (allocated - allocatedForFew) / float64(many-few); many-few < 20000 || each > 0.02 {
		t.Errorf("%.0f allocations for %d objects, %.0f for %d: %.3f each, want at most 0.02",
			allocatedForFew, few, allocated, many, each)
	}
}
