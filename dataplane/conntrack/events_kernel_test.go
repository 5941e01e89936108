package conntrack

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/netnstest"
)

// TestKernelEvents: the beginning and the end of a connection are announced, with its endpoint, and it can be read in
// between.
func TestKernelEvents(t *testing.T) {
	node := newTracking(t)
	if err := node.Sysctl("net.netfilter.nf_conntrack_acct", "1"); err != nil {
		t.Fatal(err)
	}
	var events *Events
	if err := node.Do(func() (err error) { events, err = ListenToEvents(); return err }); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := events.Close(); err != nil {
			t.Error(err)
		}
	}()
	ctx, stop := context.WithCancel(t.Context())
	began, done := make(chan struct{}, 10), make(chan error, 1)
	var got []string
	go func() {
		done <- events.Run(ctx, func(e *TableEvent) {
			now, there := events.Read(ctx, e)
			got = append(got, fmt.Sprint(e.Kind, e.Family == service.IPv4, e.From.Port(), e.To, e.Answerer, e.Replied, e.Carried.PacketsIn, there, now.Carried.PacketsIn))
			began <- struct{}{}
		}, func() { t.Error("events were lost") })
	}()
	if err := send(node, 3000); err != nil {
		t.Fatal(err)
	}
	select {
	case <-began:
	case <-time.After(5 * time.Second):
		t.Fatal("nothing was announced")
	}
	if err := netnstest.FlushConntrack(node); err != nil {
		t.Fatal(err)
	}
	time.Sleep(100 * time.Millisecond)
	stop()
	<-done
	want := []string{"0 true 3000 10.96.0.10:53 10.0.2.2:5353 false 0 true 1", "2 true 3000 10.96.0.10:53 10.0.2.2:5353 false 1 false 0"}
	got = slices.DeleteFunc(got, func(s string) bool { return strings.HasPrefix(s, "1 ") || !strings.Contains(s, "10.96.0.10") })
	if !slices.Equal(got, want) {
		t.Errorf("announced %q, want %q", got, want)
	}
}
