// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"k8s.io/kube-proxy/config/v1alpha1"

	"github.com/spf13/pflag"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/internal/daemon/config"
	"github.com/sluice-proxy/sluice/internal/daemon/feed"
	"github.com/sluice-proxy/sluice/internal/daemon/logging"
	"github.com/sluice-proxy/sluice/internal/daemon/setup"
	"github.com/sluice-proxy/sluice/proxy"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/netnstest"
	"github.com/sluice-proxy/sluice/test/testenv"
)

// TestServer_FailedConstructionHoldsNothing: a server whose construction fails holds no resource. Its backend has
// opened sockets by then, and a configuration file may cause the same error repeatedly.
func TestServer_FailedConstructionHoldsNothing(t *testing.T) {
	node := netnstest.New(t, "node") // the mode changes sysctls
	o := parsed(t, "--proxy-mode=userspace", "--hostname-override=n1", "--sluice-state-dir="+t.TempDir())
	o.KubeProxy.DetectLocalMode = v1alpha1.LocalMode(proxy.DetectBridgeInterface) // and no bridge: the proxy rejects that
	log, err := logging.New(o.Log())
	check(t, err)
	check(t, node.Do(func() error { failToMakeServers(t, o, log); return nil }))
}

func failToMakeServers(t *testing.T, o *Options, log *logging.Logger) {
	t.Helper()
	p := testLifetime(t, log)
	descriptors := func() int {
		found, err := os.ReadDir("/proc/self/fd")
		check(t, err)
		return len(found)
	}
	before := 0
	for i := range 11 {
		if _, err := newServer(t.Context(), o, p); err == nil {
			t.Fatal("a server without a bridge was made")
		} else if i == 0 {
			t.Log(err)
			before = descriptors() // what stays for good is open now
		}
	}
	if after := descriptors(); after > before+2 {
		t.Errorf("%d descriptors after one failure, %d after eleven", before, after)
	}
}

// testLifetime returns one whose servers have no Services.
func testLifetime(t *testing.T, log *logging.Logger) *lifetime {
	t.Helper()
	life := newLifetime(log, feed.Manifests(t.TempDir()), t.TempDir())
	t.Cleanup(life.end)
	return life
}

// parsed returns the options of a valid command line of run.
func parsed(t *testing.T, words ...string) *Options {
	t.Helper()
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	o := &Options{Options: setup.Options{Flags: config.BindServing(flags)}}
	check(t, flags.Parse(words))
	check(t, o.Load())
	return o
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestServer_ForwardersFollowConfiguration: a new configuration's denied addresses and limit per client apply to
// existing forwarders, as soon as its server serves. A configuration whose server cannot be made changes nothing.
func TestServer_ForwardersFollowConfiguration(t *testing.T) {
	if netnstest.Rerun(t) {
		return
	}
	frontend, endpoint := netip.MustParseAddrPort("10.0.0.41:80"), netip.MustParseAddrPort("192.0.2.1:8080")
	out, err := exec.Command("ip", "address", "add", "192.0.2.1/32", "dev", "lo").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	l, err := net.Listen("tcp", endpoint.String())
	check(t, err)
	defer l.Close() // the test ends
	go greet(l)

	state := t.TempDir()
	options := func(denied []string, perClient int32) *Options {
		o := parsed(t, "--proxy-mode=userspace", "--hostname-override=n1", "--sluice-state-dir="+state, testenv.Settings(t, "log: {level: error}"))
		o.Sluice.Addresses.Denied, o.Sluice.Userspace.ConnectionsPerClient = denied, perClient
		return o
	}
	o, denied := options(nil, 0), []string{"192.0.2.0/24"}
	log, err := logging.New(o.Log())
	check(t, err)
	p := testLifetime(t, log)
	served, err := newServer(t.Context(), o, p)
	check(t, err)
	defer served.discard() // the test ends
	served.handover.follow()
	view := &service.View{Key: service.Key{Namespace: "ns1", Name: "web"}}
	view.Ports[service.IPv4] = []service.PortView{{
		Name: "http", Protocol: service.TCP, Port: frontend.Port(), ClusterIP: frontend.Addr(), HasAny: true, Cluster: []service.Endpoint{{AddrPort: endpoint}},
	}}
	var changes []dataplane.Change
	for _, object := range served.backend.Domains[0].Renderer.Service(t.Context(), view, &service.NodeFacts{}) {
		changes = append(changes, dataplane.Change{ID: object.ID, After: &object, Owner: view.Key})
	}
	if r := served.backend.Domains[0].Writer.Write(t.Context(), &dataplane.Batch{Changes: changes}); r.Outcome != dataplane.Landed {
		t.Fatalf("write: %v", r)
	}

	expect := func(when string, want int) {
		t.Helper()
		got := connect(t, frontend, 3)
		for deadline := time.Now().Add(testenv.Patience); got != want && time.Now().Before(deadline); got = connect(t, frontend, 3) {
			time.Sleep(50 * time.Millisecond) // the forwarder may not have noticed the end of earlier ones
		}
		if got != want {
			t.Errorf("%s: %d of 3 connections at the same time are served, want %d", when, got, want)
		}
	}
	expect("at first", 3)
	succeed := func(o *Options) (*server, error) { return served.prepareSuccessor(t.Context(), o.Config, nil) }
	rejected := options(denied, 2)
	rejected.KubeProxy.DetectLocalMode = v1alpha1.LocalMode(proxy.DetectBridgeInterface) // and no bridge
	if _, err := succeed(rejected); err == nil {
		t.Fatal("a server without a bridge was made")
	}
	expect("after a change that cannot be applied", 3)
	former := 3
	for _, c := range []struct {
		denied          []string
		perClient, want int
	}{{nil, 2, 2}, {denied, 0, 0}, {nil, 0, 3}} {
		next, err := succeed(options(c.denied, int32(c.perClient)))
		check(t, err)
		defer next.discard() // the test ends
		expect("while the former server serves", former)
		next.handover.follow()
		expect(fmt.Sprintf("with %v denied, and %d per client", c.denied, c.perClient), c.want)
		former = c.want
	}
}

// greet sends a byte to each client, and keeps the connection.
func greet(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		_, _ = c.Write([]byte{'a'}) // the client notices
		go func() {
			_, _ = c.Read(make([]byte, 1))
			_ = c.Close()
		}()
	}
}

// connect opens connections, and returns how many are greeted while all are open.
func connect(t *testing.T, to netip.AddrPort, n int) (greeted int) {
	t.Helper()
	for range n {
		c, err := net.DialTimeout("tcp", to.String(), testenv.Patience)
		if errors.Is(err, syscall.ECONNRESET) {
			continue
		}
		check(t, err)
		defer c.Close() // it may be reset
		check(t, c.SetDeadline(time.Now().Add(testenv.Patience)))
		if read, err := c.Read(make([]byte, 1)); read == 1 {
			greeted++
		} else if errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error("neither greeted nor reset")
		}
	}
	return greeted
}
