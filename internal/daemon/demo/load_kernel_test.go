package demo

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/test/netnstest"
	"github.com/sluice-proxy/sluice/test/testenv"
)

// client makes a host that answers itself on the addresses of the targets: one
// backend for each name, at those of the targets that it is given.
func client(t *testing.T, served map[string][]target) *netns.Namespace {
	t.Helper()
	host := netnstest.New(t, t.Name())
	for _, t0 := range targets {
		if err := host.AddAddress("lo", netip.PrefixFrom(t0.addr.Addr(), t0.addr.Addr().BitLen())); err != nil {
			t.Fatal(err)
		}
	}
	for name, at := range served {
		for _, t0 := range at {
			b, err := netns.StartBackend(host, name, t0.addr)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := b.Close(); err != nil {
					t.Error(err)
				}
			})
		}
	}
	return host
}

func TestKernelConnectManyCounts(t *testing.T) {
	host := client(t, map[string][]target{"pod-11": targets})
	for _, at := range targets {
		answers, err := connectMany(t.Context(), host, at, 20)
		if err != nil || len(answers) != 1 || answers["pod-11"] != 20 {
			t.Errorf("%s: got %v, %v", at.label, answers, err)
		}
	}
}

func TestKernelConnectManyFailsWhenNobodyServes(t *testing.T) {
	host := client(t, map[string][]target{"pod-11": targets[1:]})
	_, err := connectMany(t.Context(), host, targets[0], 20)
	if !errors.Is(err, syscall.ECONNREFUSED) || !strings.HasPrefix(err.Error(), "TCP on IPv4: ") {
		t.Errorf("got %v, want a refused connection to TCP on IPv4", err)
	}
}

func started(t *testing.T, from *netns.Namespace) *load {
	t.Helper()
	l, err := startLoad(t.Context(), from)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestKernelLoadIsCleanWhenAllServe(t *testing.T) {
	l := started(t, client(t, map[string][]target{"pod-11": targets}))
	began := time.Now()
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
}

func TestKernelLoadKeepsFailures(t *testing.T) {
	l := started(t, client(t, map[string][]target{"pod-11": targets[:1]}))
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
	if !errors.Is(err, syscall.ECONNREFUSED) || made == 0 {
		t.Errorf("%d connections, %v; want the refused ones", made, err)
	}
}

// answering returns a run whose client answers itself.
func answering(t *testing.T, served map[string][]target) *run {
	var out strings.Builder
	return &run{page: NewPage(&out), network: &network{client: client(t, served)}, recorder: newRecorder(), chaos: newChaos()}
}

func TestKernelSpreadWantsAllPodsToAnswer(t *testing.T) {
	err := answering(t, map[string][]target{"pod-11": targets}).spread(t.Context())
	if err == nil || err.Error() != "TCP on IPv4: pod-12 answered 0 of 250 connections: not spread evenly" {
		t.Errorf("got %v", err)
	}
}

func TestKernelSpreadWantsEveryConnection(t *testing.T) {
	err := answering(t, nil).spread(t.Context())
	if !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("got %v", err)
	}
}

func TestKernelGone(t *testing.T) {
	s := answering(t, map[string][]target{"pod-13": targets})
	if err := s.gone(t.Context(), "pod-13"); err == nil || err.Error() != "TCP on IPv4: pod-13 still answers after it was taken out" {
		t.Errorf("got %v", err)
	}
	if err := s.gone(t.Context(), "pod-14"); err != nil {
		t.Error(err)
	}
}
