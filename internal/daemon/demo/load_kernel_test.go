// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"errors"
	"io"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/sluice-proxy/sluice/internal/daemon/lab"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/netnstest"
	"github.com/sluice-proxy/sluice/test/testenv"
)

// play runs a test in a separate network, in which a pod answers at some of the targets itself.
func play(t *testing.T, pod string, served []target, test func(*run)) {
	t.Helper()
	if netnstest.Rerun(t) {
		return
	}
	network, err := lab.New(nil, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	servers := map[lab.Socket]string{}
	for _, at := range served {
		servers[lab.Socket{At: at.addr, Protocol: map[string]service.Protocol{"tcp": service.TCP, "udp": service.UDP}[at.network]}] = pod
	}
	network.Want(servers)
	test(&run{page: NewPage(io.Discard), network: network, recorder: newRecorder(), chaos: newChaos()})
	if err := network.Close(); err != nil {
		t.Error(err)
	}
}

// TestKernelConnectMany_Counts: the answers to all connections are counted by pod.
func TestKernelConnectMany_Counts(t *testing.T) {
	play(t, "pod-11", targets, func(r *run) {
		for _, at := range targets {
			answers, err := r.connectMany(t.Context(), at, 20)
			if err != nil || len(answers) != 1 || answers["pod-11"] != 20 {
				t.Errorf("%s: got %v, %v", at.label, answers, err)
			}
		}
	})
}

// TestKernelLoad_CleanWhenAllServe: the load reports no error if all targets answer.
func TestKernelLoad_CleanWhenAllServe(t *testing.T) {
	play(t, "pod-11", targets, func(r *run) {
		l, began := r.startLoad(t.Context()), time.Now()
		wait, cancel := context.WithTimeout(t.Context(), testenv.Patience)
		defer cancel()
		for _, at := range targets {
			if _, err := l.firstAnswer(wait, at, "pod-11", began); err != nil {
				t.Error(err)
			}
		}
		made, err := l.stop()
		if err != nil || made < len(targets) {
			t.Errorf("%d connections, %v", made, err)
		}
	})
}

// TestKernelLoad_KeepsFailures: the load reports a refused connection at its end: the address of the first pod only
// answers at one port.
func TestKernelLoad_KeepsFailures(t *testing.T) {
	closed := target{"a closed port", "tcp", netip.AddrPortFrom(targets[0].addr.Addr(), 81)}
	play(t, "pod-11", targets[:1], func(r *run) {
		defer func(all []target) { targets = all }(targets)
		targets = []target{targets[0], closed}
		l := r.startLoad(t.Context())
		wait, cancel := context.WithTimeout(t.Context(), testenv.Patience)
		defer cancel()
		if _, err := l.firstAnswer(wait, targets[0], "pod-11", time.Time{}); err != nil {
			t.Error(err)
		}
		short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if _, err := l.firstAnswer(short, targets[0], "pod-14", time.Time{}); err == nil || err.Error() != "TCP on IPv4: pod-14 never answered" {
			t.Errorf("got %v, want that pod-14 never answered", err)
		}
		made, err := l.stop()
		if !errors.Is(err, syscall.ECONNREFUSED) || !strings.Contains(err.Error(), "a closed port: ") || made == 0 {
			t.Errorf("%d connections, %v; want the refused ones", made, err)
		}
	})
}

// TestKernelSpread_RequiresAllPods: spread fails if a pod answers no connection.
func TestKernelSpread_RequiresAllPods(t *testing.T) {
	play(t, "pod-11", targets, func(r *run) {
		err := r.spread(t.Context())
		if err == nil || err.Error() != "TCP on IPv4: pod-12 answered 0 of 250 connections: not spread evenly" {
			t.Errorf("got %v", err)
		}
	})
}

// TestKernelSpread_RequiresEveryConnection: spread fails if a connection fails: without a pod, no host answers for the
// address.
func TestKernelSpread_RequiresEveryConnection(t *testing.T) {
	play(t, "", nil, func(r *run) {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if err := r.spread(ctx); err == nil || !strings.HasPrefix(err.Error(), "TCP on IPv4: ") {
			t.Errorf("got %v, want a failed connection to TCP on IPv4", err)
		}
	})
}

func TestKernelGone(t *testing.T) {
	play(t, "pod-13", targets, func(r *run) {
		if err := r.gone(t.Context(), "pod-13"); err == nil || err.Error() != "TCP on IPv4: pod-13 still answers after it was taken out" {
			t.Errorf("got %v", err)
		}
		if err := r.gone(t.Context(), "pod-14"); err != nil {
			t.Error(err)
		}
	})
}
