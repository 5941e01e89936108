// SPDX-License-Identifier: Apache-2.0

package kernel_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/nftables/kernel"
	"github.com/sluice-proxy/sluice/dataplane/nftables/wire"
	"github.com/sluice-proxy/sluice/internal/netlink"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/netnstest"
	"github.com/sluice-proxy/sluice/test/testenv"
)

// listeners counts the sockets in the node's namespace that listen to changes of tables.
func (w *world) listeners() (count int) {
	w.Helper()
	var text []byte
	err := w.node.Do(func() (err error) {
		text, err = os.ReadFile("/proc/thread-self/net/netlink")
		return err
	})
	if err != nil {
		w.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		protocol := strconv.Itoa(unix.NETLINK_NETFILTER)
		groups, err := strconv.ParseUint(fields[3], 16, 32)
		if err == nil && fields[1] == protocol && groups&(1<<(unix.NFNLGRP_NFTABLES-1)) != 0 {
			count++
		}
	}
	return count
}

// watch watches until the test ends.
func (w *world) watch() chan dataplane.ForeignProcess {
	heard := make(chan dataplane.ForeignProcess, 1000)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.writer.Watch(ctx, func(by dataplane.ForeignProcess) { heard <- by }) }()
	w.Cleanup(func() { cancel(); <-ended })
	return heard
}

// awaitListeners waits until so many sockets listen.
func (w *world) awaitListeners(count int) {
	w.Helper()
	testenv.Eventually(w, fmt.Sprintf("%d sockets listen", count), func() bool { return w.listeners() == count })
}

// TestWatch_BeginsAfterFirstWrites: no watch listens before both families have written. The kernel describes each
// element of a transaction as soon as a socket listens.
func TestWatch_BeginsAfterFirstWrites(t *testing.T) {
	starts := kernel.NewStarts()
	ipv4 := newWorld(t, service.IPv4, kernel.WriterConfig{})
	ipv6 := newWorld(t, service.IPv6, kernel.WriterConfig{})
	ipv6.node = ipv4.node // and not its own
	listening := map[int]int{}
	var looked atomic.Int32
	open := openHearing(&looked, func() { listening[ipv4.listeners()]++ })
	for _, w := range []*world{ipv4, ipv6} {
		w.restart(kernel.WriterConfig{Starts: starts, Open: open, TransactionBytes: 8 << 10})
	}
	heard := []chan dataplane.ForeignProcess{ipv4.watch(), ipv6.watch()}
	awaitLooks(t, &looked, 2)

	ipv6.commit()
	ipv4.fill(200, 10)
	ipv4.commit()
	if listening[0] < 5 || len(listening) != 1 {
		t.Errorf("transactions by the number of listeners: %v, want several without any", listening)
	}
	ipv4.awaitListeners(2)
	time.Sleep(20 * time.Millisecond)
	for family, heard := range heard {
		if len(heard) > 0 {
			t.Errorf("%v heard %+v, and nobody else changed anything", service.Family(family), <-heard)
		}
	}
	ipv4.nft("flush chain ip kube-proxy services", "-f", "-")
	if by := <-heard[service.IPv4]; by.Command != "nft" {
		t.Errorf("heard of %+v, want nft", by)
	}
}

// TestWatch_ForeignProcessHasParents: Watch finds a process that continues after its change in /proc, with its parents.
func TestWatch_ForeignProcessHasParents(t *testing.T) {
	w := newWorld(t, service.IPv4, kernel.WriterConfig{})
	w.commit()
	heard := w.watch()
	w.awaitListeners(1)
	cmd := exec.Command("nft", "-i")
	in, err := cmd.StdinPipe()
	if err == nil {
		err = netnstest.Start(w.node, cmd)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = in.Close(); _ = cmd.Wait() }()
	if _, err := io.WriteString(in, "flush chain ip kube-proxy services\n"); err != nil {
		t.Fatal(err)
	}
	by := <-heard
	want := fmt.Sprintf("nft (process %d), started by ", cmd.Process.Pid)
	if !strings.HasPrefix(by.String(), want) || !strings.Contains(by.Origin, fmt.Sprintf("(process %d)", os.Getpid())) {
		t.Errorf("heard of %q, want %q with process %d", by, want, os.Getpid())
	}
}

// hearing is a socket that calls a function before each transaction, and counts the looks for
// a table.
type hearing struct {
	*wire.Socket
	looked *atomic.Int32
	before func()
}

func openHearing(looked *atomic.Int32, before func()) func() (kernel.Socket, error) {
	return func() (kernel.Socket, error) {
		socket, err := wire.Open()
		return hearing{socket, looked, before}, err
	}
}

// Commit is for kernel.Socket.
func (h hearing) Commit(t *wire.Transaction) ([]*wire.Rejection, error) {
	h.before()
	return h.Socket.Commit(t)
}

// Ask is for kernel.Socket.
func (h hearing) Ask(ctx context.Context, kind uint16, family uint8, all bool, attrs []byte, each func(netlink.Netfilter)) error {
	err := h.Socket.Ask(ctx, kind, family, all, attrs, each)
	if kind == unix.NFT_MSG_GETTABLE {
		h.looked.Add(1)
	}
	return err
}

// awaitLooks waits until Watch has looked for a table so many times.
func awaitLooks(t *testing.T, looked *atomic.Int32, times int32) {
	t.Helper()
	testenv.Eventually(t, fmt.Sprintf("%d looks for a table", times), func() bool { return looked.Load() >= times })
}

// TestWatch_StrangerDuringFirstWrite: a foreign change during the first write, before Watch listens, causes an audit.
func TestWatch_StrangerDuringFirstWrite(t *testing.T) {
	w := newWorld(t, service.IPv4, kernel.WriterConfig{})
	parts := 0
	var looked atomic.Int32
	w.restart(kernel.WriterConfig{Open: openHearing(&looked, func() {}), TransactionBytes: 8 << 10, Progress: func(landed, all int) {
		if parts++; landed == all {
			w.nft("delete element ip kube-proxy ${frontends} { 172.16.0.7 . tcp . 80 }", "-f", "-")
		}
	}})
	heard := w.watch()
	awaitLooks(t, &looked, 1)
	w.fill(200, 10)
	w.commit()
	select {
	case <-heard:
	case <-time.After(testenv.Patience):
		t.Fatal("nothing was heard")
	}
	if drift := w.audit(); drift.Missing != 1 || parts < 5 {
		t.Errorf("after %d transactions: %+v, want one missing", parts, drift)
	}
}
