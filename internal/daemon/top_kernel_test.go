// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/sluice-proxy/sluice/internal/daemon/config"
	"github.com/sluice-proxy/sluice/internal/daemon/feed"
	"github.com/sluice-proxy/sluice/internal/daemon/setup"
	"github.com/sluice-proxy/sluice/internal/inspect"
	"github.com/sluice-proxy/sluice/test/netnstest"
	"github.com/sluice-proxy/sluice/test/testenv"
)

// TestTop_IPTablesMode: top shows connections to a Service and its endpoints, and refused packets, in both variants of
// iptables.
func TestTop_IPTablesMode(t *testing.T) {
	for _, variant := range testenv.Variants("nft", "legacy") {
		t.Run(variant, func(t *testing.T) {
			if !netnstest.Rerun(t) {
				topInIPTablesMode(t, variant)
			}
		})
	}
}

func topInIPTablesMode(t *testing.T, variant string) {
	out, err := exec.Command("sh", "-c", "ip link set lo up && ip address add 10.1.0.1 dev lo && ip route add default dev lo").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	dir := t.TempDir()
	check(t, os.CopyFS(filepath.Join(dir, "demo"), os.DirFS("../../examples/demo")))
	check(t, os.WriteFile(filepath.Join(dir, "demo", "empty.yaml"), []byte(`apiVersion: v1
kind: Service
metadata: {name: empty, namespace: demo}
spec: {clusterIP: 172.30.0.99, clusterIPs: [172.30.0.99], ports: [{port: 80, protocol: UDP}]}
`), 0o600))
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	o := &Options{Options: setup.Options{Flags: config.BindProxy(flags)}}
	check(t, flags.Parse([]string{
		"--proxy-mode", "iptables", testenv.Settings(t, "iptables: {variant: "+variant+"}"), "--hostname-override", "demo", testenv.Settings(t, "log: {level: error}"),
		"--sluice-state-dir", filepath.Join(dir, "state"),
	}))
	check(t, o.Load())
	applied := make(chan config.Mode, 10)
	o.FirstSync = func(m config.Mode) { applied <- m }
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, o, feed.Manifests(filepath.Join(dir, "demo"))) }()
	defer func() { cancel(); check(t, <-ended) }()
	select {
	case <-applied:
	case err := <-ended:
		ended <- err
		t.Fatal(err)
	}
	socket := inspect.NewClient(filepath.Join(dir, "state", "sluice.sock"))
	top := func(kind string, since time.Time) (list *inspect.TopList, sums map[string]inspect.TopItem) {
		testenv.Eventually(t, "the counters are read again", func() bool { // a busy node reads them rarely
			var err error
			list, err = socket.Top(ctx, &inspect.TopQuery{Kind: kind, Since: inspect.TopSinceMax})
			return err == nil && list.To.After(since)
		})
		sums = map[string]inspect.TopItem{}
		for _, item := range list.Items {
			sum := sums[item.Name]
			sum.Connections, sum.Refused = sum.Connections+item.Connections, sum.Refused+item.Refused
			sums[item.Name] = sum
		}
		return list, sums
	}
	top("services", time.Time{})
	const connections = 20
	for range connections {
		for _, to := range []string{"172.30.0.53:53", "172.30.0.99:80"} {
			c, err := net.Dial("udp", to)
			check(t, err)
			defer c.Close()             // nothing is sent any more. While it is open, no other connection gets its port
			_, _ = c.Write([]byte("x")) // what is refused is an error
		}
	}
	sent := time.Now()
	list, of := top("services", sent)
	if of["dns"].Connections != connections || of["empty"].Refused != connections || of["empty"].Connections != 0 || !list.Counted.Connections || !list.Counted.Refused {
		t.Errorf("Services: %+v", list)
	}
	list, of = top("endpoints", sent)
	if of["dns"].Connections != connections || len(list.Items) < 2 || !list.Counted.Connections || list.Counted.Refused {
		t.Errorf("endpoints: %+v", list)
	}
}
