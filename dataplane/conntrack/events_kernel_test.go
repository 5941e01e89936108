// SPDX-License-Identifier: Apache-2.0

package conntrack

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/conntracktest"
	"github.com/sluice-proxy/sluice/test/netnstest"
	"github.com/sluice-proxy/sluice/test/testenv"
)

// TestKernelEvents: the feed announces the beginning and the end of a connection with its endpoint, and the connection
// can be read in between.
func TestKernelEvents(t *testing.T) {
	node := conntracktest.NewNode(t)
	if err := node.Sysctl("net.netfilter.nf_conntrack_acct", "1"); err != nil {
		t.Fatal(err)
	}
	feed := &Feed{Open: Listen, Owner: func(_ service.Family, f service.Frontend) (service.Key, bool) {
		return service.Key{Name: "dns"}, f.Addr == netip.MustParseAddr("10.96.0.10")
	}}
	var heard *Subscription
	if err := node.Do(func() (err error) {
		heard, err = feed.Subscribe(func(key service.Key) bool { return key.Name == "dns" })
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := heard.Close(); err != nil {
			t.Error(err)
		}
		feed.Rest()
	}()
	if err := conntracktest.Send(node, 3000); err != nil {
		t.Fatal(err)
	}
	await := func(want string) {
		t.Helper()
		select {
		case <-heard.C:
		case <-time.After(testenv.Patience):
			t.Fatalf("not announced: %q", want)
		}
		events, lost, err := heard.Take()
		if len(events) != 1 || lost || err != nil {
			t.Fatalf("%d events, lost %t: %v", len(events), lost, err)
		}
		e, now := events[0], events[0]
		if err := node.Do(func() error { heard.Read(t.Context(), &now); return nil }); err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(e.Kind, e.Family == service.IPv4, e.From.Port(), e.To, e.Answerer, e.Replied, e.Carried.PacketsIn, now.Carried.PacketsIn); got != want {
			t.Errorf("announced %q, want %q", got, want)
		}
	}
	await("0 true 3000 10.96.0.10:53 10.0.2.2:5353 false 0 1")
	if err := netnstest.FlushConntrack(node); err != nil {
		t.Fatal(err)
	}
	await("2 true 3000 10.96.0.10:53 10.0.2.2:5353 false 1 1")
}
