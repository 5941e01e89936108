// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/iptables/render"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/rendertest"
)

// accountingNode is a whole node whose rules count, with a node port on localhost.
func accountingNode(family service.Family) []dataplane.Object {
	w, renderer := rendertest.WorldOf(family), render.NewRenderer(family, render.Options{MasqueradeBit: 14, Accounting: true})
	facts := w.Facts()
	facts.LocalhostNodePorts = true
	objects := append(renderer.Node(facts), renderer.Service(context.Background(), w.View(w.OpenPort()), facts)...)
	layout := render.NewLayout(family)
	var owned []dataplane.Object
	for _, o := range objects {
		if o.Kind == dataplane.Element {
			layout.Put(&o, service.Node)
		} else {
			owned = append(owned, o)
		}
	}
	for _, c := range layout.Flush() {
		owned = append(owned, *c.Object)
	}
	return owned
}

// TestKernelAccounting: the writer creates the objects that rules count in, and creates them again if they were deleted
// with the rules. The tools print the rules as rendered, a connection to a node port on localhost counts, kube-proxy's
// counts remain, and the objects are deleted after the rules.
func TestKernelAccounting(t *testing.T) {
	onKernels(t, func(k *kernelTest) {
		if err := k.tool.Accounting(k.Context()); err != nil {
			k.Fatal(err)
		}
		if packets := k.accounts(); len(packets) != 0 {
			k.Fatalf("asking has created %v", packets)
		}
		k.writer = NewWriter(k.family, k.tool, WriterConfig{Accounting: true})
		objects := accountingNode(k.family)
		var changes []dataplane.Change
		for i := range objects {
			changes = append(changes, dataplane.Change{ID: objects[i].ID, After: &objects[i]})
		}
		cycle := func(localhost uint64) {
			k.write(changes...)
			var want []*dataplane.Object
			for i := range objects {
				want = append(want, &objects[i])
			}
			k.expect(want...)
			k.connect()
			if k.family == service.IPv6 {
				localhost = 0 // node ports do not answer on ::1
			}
			if packets := k.accounts(); len(packets) != 2 || packets[render.AccountLocalhost] != localhost || packets[render.AccountInvalid] != 0 {
				k.Errorf("counted %v, want %d", packets, localhost)
			}
		}
		cycle(1)
		if err := RemoveAccounts(); err != nil || len(k.accounts()) == 0 {
			k.Errorf("removed objects in use: %v, %v", k.accounts(), err)
		}
		if _, err := Cleanup(k.Context(), k.family, k.tool, DefaultOwnership(), false); err != nil {
			k.Fatal(err)
		}
		cycle(2) // as after kube-proxy, which leaves the objects
		if _, err := Cleanup(k.Context(), k.family, k.tool, DefaultOwnership(), false); err != nil {
			k.Fatal(err)
		}
		for range 2 { // the second time there is nothing to remove
			if err := RemoveAccounts(); err != nil || len(k.accounts()) != 0 {
				k.Errorf("left %v, %v", k.accounts(), err)
			}
		}
		cycle(1)
	})
}

func (k *kernelTest) accounts() map[string]uint64 {
	k.Helper()
	packets, err := ReadAccounts()
	if err != nil {
		k.Fatal(err)
	}
	return packets
}

// connect sends one packet to the node port on localhost. Nobody answers.
func (k *kernelTest) connect() {
	k.Helper()
	k.run("ip", "link", "set", "lo", "up")
	if err := os.WriteFile("/proc/sys/"+RouteLocalnet, []byte("1"), 0o600); err != nil {
		k.Fatal(err)
	}
	to := "127.0.0.1:30080"
	if k.family == service.IPv6 {
		to = "[::1]:30080"
	}
	// Shorter than the second after which the packet would be sent again.
	conn, err := net.DialTimeout("tcp", to, 300*time.Millisecond)
	if err == nil {
		_ = conn.Close()
	}
}

// TestKernelAccounting_ExtensionMissing: Accounting reports iptables programs without the nfacct extension before a
// rule needs it.
func TestKernelAccounting_ExtensionMissing(t *testing.T) {
	onKernels(t, func(k *kernelTest) {
		extensions, err := filepath.Glob("/usr/lib/*/xtables/*")
		if err != nil || len(extensions) < 20 {
			k.Fatalf("%d extensions of iptables found, %v", len(extensions), err)
		}
		without := k.TempDir()
		for _, path := range extensions {
			if name := filepath.Base(path); !strings.Contains(name, "nfacct") {
				if err := os.Symlink(path, filepath.Join(without, name)); err != nil {
					k.Fatal(err)
				}
			}
		}
		k.Setenv("XTABLES_LIBDIR", without)
		err = k.tool.Accounting(k.Context())
		if _, conclusive := errors.AsType[*NoAccountingError](err); !conclusive || !strings.Contains(err.Error(), "libxt_nfacct.so") {
			k.Errorf("got %v", err)
		}
	})
}
