// SPDX-License-Identifier: Apache-2.0

package cleaner

import (
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane/conntrack"
	"github.com/sluice-proxy/sluice/internal/netlink"
	"github.com/sluice-proxy/sluice/service"
)

// swept runs one sweep.
func swept(t *testing.T, table *table, f *fake) (Swept, error) {
	t.Helper()
	s := newSweep(table, f, service.IPv4, service.NodePortAddresses{All: true}, map[destination]service.Key{})
	err := s.run(t.Context())
	return s.result, err
}

// served is a table with a Service that has moved from endpoint a to b.
func served() *table {
	table := newTable()
	table.tell(named("dns"), pictured([]string{clusterIP, external, ":30053"}, []string{endpointB}))
	return table
}

func populated() *fake {
	f := newFake()
	f.host = []netip.Addr{at(onNode).Addr()}
	f.add("stale", clusterIP, endpointA)
	f.add("stale external", external, endpointA)
	f.add("stale node port", onNode, endpointA)
	f.add("current", clusterIP, endpointB)
	f.add("foreign", "203.0.113.9:30053", "203.0.113.9:30053")
	return f
}

var survivors = []string{"current", "foreign"}

func TestSweep(t *testing.T) {
	table, f := served(), populated()
	result, err := swept(t, table, f)
	if err != nil {
		t.Fatal(err)
	}
	want := Swept{
		Family: service.IPv4, Flows: 5,
		Deleted: 3, Services: map[service.Key]int{named("dns"): 3},
	}
	if result.Took = 0; !reflect.DeepEqual(result, want) {
		t.Errorf("got %+v, want %+v", result, want)
	}
	if got := f.names(); !slices.Equal(got, survivors) {
		t.Errorf("left are %v, want %v", got, survivors)
	}
	if len(table.todo.flows) > 0 {
		t.Errorf("still pending: %v", table.todo.flows)
	}
	if f.listings != 3 {
		t.Errorf("%d questions for 3 frontends: %v", f.listings, f.asked)
	}
}

// TestSweep_AsksOnce: a sweep lists the table once if it has too many frontends for filters, or if the kernel has no
// filters.
func TestSweep_AsksOnce(t *testing.T) {
	many := newTable()
	for i := range filtersMax + 1 {
		many.tell(named(fmt.Sprint(i)), pictured([]string{fmt.Sprintf("10.96.0.%d:53", 10+i)}, []string{endpointB}))
	}
	old := populated()
	old.old = true
	for name, c := range map[string]struct {
		table *table
		fake  *fake
	}{"many frontends": {many, populated()}, "old kernel": {served(), old}} {
		if _, err := swept(t, c.table, c.fake); err != nil {
			t.Fatal(err)
		}
		if c.fake.listings != 1 || len(c.table.todo.flows) != 0 {
			t.Errorf("%s: %d questions, %d frontends left", name, c.fake.listings, len(c.table.todo.flows))
		}
		if slices.Contains(c.fake.names(), "stale") {
			t.Errorf("%s: what was stale is still there", name)
		}
	}
}

// TestSweep_NeverAsksForIPv6Addresses: a sweep never filters by IPv6 addresses, because the kernel compares them the
// wrong way round.
func TestSweep_NeverAsksForIPv6Addresses(t *testing.T) {
	table := newTable()
	table.tell(named("dns"), pictured([]string{"[fd96::10]:53", "[2001:db8::7]:53", ":30053"}, []string{"[fd10::1]:53"}))
	f := newFake()
	f.add("stale", "[fd96::10]:53", "[fd10::2]:53")
	f.add("stale too", "[2001:db8::7]:53", "[fd10::2]:53")
	if _, err := swept(t, table, f); err != nil {
		t.Fatal(err)
	}
	for _, only := range f.asked {
		if only.Addr.IsValid() {
			t.Errorf("asked for %v", only)
		}
	}
	if f.listings != 2 || len(f.names()) != 0 || len(table.todo.flows) != 0 {
		t.Errorf("%d questions for two ports; left are %v, pending %v", f.listings, f.names(), table.todo.flows)
	}
}

// TestSweep_DeletesInBatches: a sweep deletes more stale flows than fit into one request.
func TestSweep_DeletesInBatches(t *testing.T) {
	table, f := served(), populated()
	const stale = 3*removeBatch + 5
	for i := range stale {
		f.add(fmt.Sprintf("flow %d", i), clusterIP, endpointA)
	}
	result, err := swept(t, table, f)
	if err != nil || result.Deleted != stale+3 || !slices.Equal(f.names(), survivors) {
		t.Errorf("%+v, %v; left are %v", result, err, f.names())
	}
}

// TestSweep_BeginsAgainIfInterrupted: a sweep repeats an interrupted listing, up to a limit.
func TestSweep_BeginsAgainIfInterrupted(t *testing.T) {
	const listings = 6
	for interruptions, fails := range map[int]bool{listings - 1: false, listings: true} {
		table, f := served(), populated()
		f.listing = func(n int) error {
			if n <= interruptions {
				return fmt.Errorf("list flows: %w", netlink.ErrInterrupted)
			}
			return nil
		}
		_, err := swept(t, table, f)
		if (err != nil) != fails || (len(table.todo.flows) > 0) != fails {
			t.Errorf("%d interruptions: %v, %d frontends left", interruptions, err, len(table.todo.flows))
		}
		if fails && !errors.Is(err, netlink.ErrInterrupted) {
			t.Errorf("%v does not say what happened", err)
		}
	}
}

// TestSweep_FailureStaysPending: after a failure, the frontends that were not swept remain pending, and the next sweep
// completes them.
func TestSweep_FailureStaysPending(t *testing.T) {
	broken := errors.New("broken")
	table, f := served(), populated()
	f.listing = func(n int) error {
		if n == 2 {
			return broken
		}
		return nil
	}
	if _, err := swept(t, table, f); !errors.Is(err, broken) {
		t.Fatalf("got %v", err)
	}
	if len(table.todo.flows) != 2 {
		t.Errorf("%d frontends are left, want 2", len(table.todo.flows))
	}
	if _, err := swept(t, table, f); err != nil {
		t.Fatal(err)
	}
	if got := f.names(); !slices.Equal(got, survivors) || len(table.todo.flows) > 0 {
		t.Errorf("left are %v, pending %v", got, table.todo.flows)
	}
}

// TestSweep_ReportsUndeletableFlow: a sweep returns the kernel's error for a flow that cannot be deleted, such as one
// that a network card forwards (IPS_OFFLOAD), and its frontend remains pending.
func TestSweep_ReportsUndeletableFlow(t *testing.T) {
	table, f := served(), populated()
	f.removing = func(_ int, name string) error {
		if name == "stale" {
			return unix.EBUSY
		}
		return nil
	}
	for range 3 { // the order of the questions is not fixed
		result, err := swept(t, table, f)
		if !errors.Is(err, unix.EBUSY) || len(table.todo.flows) == 0 || result.Services[named("dns")] != result.Deleted {
			t.Errorf("%+v, %v, %d frontends left", result, err, len(table.todo.flows))
		}
	}
	f.removing = nil
	if result, err := swept(t, table, f); err != nil || result.Deleted == 0 || !slices.Equal(f.names(), survivors) {
		t.Errorf("%+v, %v; left are %v", result, err, f.names())
	}
}

// TestSweep_CountsOnlyItsDeletions: a sweep counts the flows that it deleted, and not those that ended by themselves.
func TestSweep_CountsOnlyItsDeletions(t *testing.T) {
	table, f := served(), populated()
	f.removing = func(_ int, name string) error {
		if name == "stale" {
			delete(f.held, name)
			return conntrack.ErrGone
		}
		return nil
	}
	if result, err := swept(t, table, f); err != nil || result.Deleted != 2 || len(table.todo.flows) > 0 {
		t.Errorf("%+v, %v, %d frontends left", result, err, len(table.todo.flows))
	}
}

// TestSweep_NodePortAddresses: a sweep deletes stale node port flows only at the addresses where node ports answer.
func TestSweep_NodePortAddresses(t *testing.T) {
	node, second := at(onNode).Addr(), netip.MustParseAddr("192.0.2.9")
	for _, tt := range []struct {
		name      string
		answering service.NodePortAddresses
		left      []string
	}{
		{"everywhere", service.NodePortAddresses{All: true}, []string{"current", "foreign"}},
		{"one address", service.NodePortAddresses{Addresses: []netip.Addr{node}}, []string{"current", "foreign", "loopback", "second"}},
		{"nowhere", service.NodePortAddresses{}, []string{"current", "foreign", "loopback", "second", "stale node port"}},
	} {
		table, f := served(), populated()
		f.host = []netip.Addr{node, second}
		f.add("second", "192.0.2.9:30053", endpointA)
		f.add("loopback", "127.0.0.2:30053", endpointA)
		s := newSweep(table, f, service.IPv4, tt.answering, nil)
		err := s.run(t.Context())
		if got := f.names(); err != nil || !slices.Equal(got, tt.left) {
			t.Errorf("%s: left are %v, %v, want %v", tt.name, got, err, tt.left)
		}
	}
}
