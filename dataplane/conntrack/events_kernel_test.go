package conntrack

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/netnstest"
	"github.com/sluice-proxy/sluice/test/testenv"
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
	announced, done := make(chan string, 1000), make(chan error, 1)
	go func() {
		done <- events.Run(ctx, func(e *TableEvent) {
			now, there := events.Read(ctx, e)
			announced <- fmt.Sprint(e.Kind, e.Family == service.IPv4, e.From.Port(), e.To, e.Answerer, e.Replied, e.Carried.PacketsIn, there, now.Carried.PacketsIn)
		}, func() { t.Error("events were lost") })
	}()
	if err := send(node, 3000); err != nil {
		t.Fatal(err)
	}
	await := func(want string) {
		t.Helper()
		for {
			select {
			case got := <-announced:
				if strings.HasPrefix(got, "1 ") || !strings.Contains(got, "10.96.0.10") {
					continue
				}
				if got != want {
					t.Errorf("announced %q, want %q", got, want)
				}
			case <-time.After(testenv.Patience):
				t.Errorf("not announced: %q", want)
			}
			return
		}
	}
	await("0 true 3000 10.96.0.10:53 10.0.2.2:5353 false 0 true 1")
	if err := netnstest.FlushConntrack(node); err != nil {
		t.Fatal(err)
	}
	await("2 true 3000 10.96.0.10:53 10.0.2.2:5353 false 1 false 0")
	stop()
	<-done
}
