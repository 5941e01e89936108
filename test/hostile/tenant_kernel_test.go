package hostile

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/test/netnstest"
)

const (
	// promptly is how long a change may take that has nothing to do with the large Service, and
	// how much longer a start may take because of it. With nothing else to do it is a few
	// milliseconds. Without a budget, each start took ten seconds.
	promptly = 3 * time.Second
	// residentMax bounds the memory of the process, in MiB.
	residentMax = 250
	// stopMax is how long the process may take to obey SIGTERM.
	stopMax = 2 * time.Second
)

// node is a node whose Services come from manifests, with a pod and a client next to it.
type node struct {
	*netns.Network
	binary, manifests, mode string
	process                 *netns.Daemon
}

var (
	pod      = netip.MustParseAddrPort("10.244.1.2:8080")
	external = netip.MustParseAddrPort("198.18.0.1:1") // of the large Service
)

func newNode(t *testing.T, binary, mode string) *node {
	t.Helper()
	prefix := func(text string) []netip.Prefix { return []netip.Prefix{netip.MustParsePrefix(text)} }
	n := &node{binary: binary, mode: mode, manifests: t.TempDir(), Network: netnstest.Build(t, netns.Plan{
		Cables: []netns.Cable{
			{Router: "node", Leaf: "pod", Port: "pod0", AtRouter: prefix("10.244.1.1/24"), AtLeaf: prefix("10.244.1.2/24")},
			{Router: "node", Leaf: "client", Port: "out0", AtRouter: prefix("192.168.0.2/24"), AtLeaf: prefix("192.168.0.9/24")},
		},
		Servers: []netns.Server{{Name: "pod", Host: "pod", At: pod}},
	})}
	n.write(t, "node", `apiVersion: v1
kind: Node
metadata: {name: demo}
spec: {podCIDRs: [10.244.1.0/24]}
status: {addresses: [{type: InternalIP, address: 192.168.0.2}]}
`)
	for i := range 20 {
		n.addShop(t, i)
	}
	return n
}

// write replaces a manifest, as kubectl apply would.
func (n *node) write(t *testing.T, name, text string) {
	t.Helper()
	part := filepath.Join(n.manifests, "."+name)
	if err := os.WriteFile(part, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(part, filepath.Join(n.manifests, name+".yaml")); err != nil {
		t.Fatal(err)
	}
}

func shop(i int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 96, 1, byte(i + 1)}), 80)
}

// addShop adds a Service of another tenant.
func (n *node) addShop(t *testing.T, i int) {
	n.write(t, fmt.Sprint("shop", i), manifestOf("shop", fmt.Sprint("s", i), shop(i).Addr().String(), "", []string{"{name: p1, port: 80}"}))
}

// addLarge adds or replaces the Service of the tenant: 800 external IPs and 250 ports are 24 KB.
func (n *node) addLarge(t *testing.T, addresses, ports int) {
	var ips, all []string
	for a, i := external.Addr(), 0; i < addresses; a, i = a.Next(), i+1 {
		ips = append(ips, a.String())
	}
	for i := range ports {
		all = append(all, fmt.Sprintf("{name: p%d, port: %d}", i+1, i+1))
	}
	n.write(t, "large", manifestOf("tenant", "large", "10.96.0.66", "  externalIPs: ["+strings.Join(ips, ", ")+"]\n", all))
}

func manifestOf(namespace, name, ip, more string, ports []string) string {
	var at []string
	for i := range ports {
		at = append(at, fmt.Sprintf("{name: p%d, port: %d}", i+1, pod.Port()))
	}
	return fmt.Sprintf(`apiVersion: v1
kind: Service
metadata: {name: %[2]s, namespace: %[1]s, creationTimestamp: "2026-05-01T00:00:00Z"}
spec:
  clusterIP: %[3]s
%[4]s  ports: [%[5]s]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %[2]s-1, namespace: %[1]s, labels: {kubernetes.io/service-name: %[2]s}}
addressType: IPv4
ports: [%[6]s]
endpoints: [{addresses: [%[7]s], nodeName: demo, conditions: {ready: true}}]
`, namespace, name, ip, more, strings.Join(ports, ", "), strings.Join(at, ", "), pod.Addr())
}

// start starts the proxy and returns how long the Services of the others took to be served.
func (n *node) start(t *testing.T, others ...netip.AddrPort) time.Duration {
	t.Helper()
	state := t.TempDir()
	cmd := exec.Command(n.binary, "run", "--manifests", n.manifests, "--proxy-mode", n.mode, "--hostname-override", "demo",
		"--log-format", "json", "--sluice-state-dir", state)
	began := time.Now()
	process, err := netns.StartDaemon(n.Hosts["node"], filepath.Join(t.TempDir(), "log"), cmd)
	if err != nil {
		t.Fatal(err)
	}
	n.process = process
	t.Cleanup(func() { _ = process.Kill() })
	for _, at := range others {
		n.await(t, at, 30*time.Second)
	}
	return time.Since(began)
}

// asks reports whether a client is answered.
func (n *node) asks(t *testing.T, at netip.AddrPort) bool {
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := n.Hosts["client"].Ask(ctx, "tcp", at)
	return err == nil
}

// await waits until a client is answered, and returns how long that took.
func (n *node) await(t *testing.T, at netip.AddrPort, most time.Duration) time.Duration {
	t.Helper()
	began := time.Now()
	for !n.asks(t, at) {
		if time.Since(began) > most {
			log, _ := os.ReadFile(n.process.LogFile())
			t.Fatalf("%v does not answer after %v; log:\n%s", at, most, log)
		}
		time.Sleep(10 * time.Millisecond)
	}
	return time.Since(began)
}

// stop sends SIGTERM.
func (n *node) stop(t *testing.T, when string) {
	t.Helper()
	if most := n.resident(t); most > residentMax {
		t.Errorf("%s: the process took %d MiB, more than %d", when, most, residentMax)
	}
	began := time.Now()
	if err := n.process.Stop(); err != nil {
		t.Errorf("%s: %v", when, err)
	}
	if took := time.Since(began); took > stopMax {
		t.Errorf("%s: SIGTERM was obeyed after %v", when, took)
	}
}

// resident returns the most memory that the process has had, in MiB.
func (n *node) resident(t *testing.T) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", n.process.PID()))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if words := strings.Fields(line); words[0] == "VmHWM:" {
			kib, err := strconv.Atoi(words[1])
			if err != nil {
				t.Fatal(err)
			}
			return kib / 1024
		}
	}
	t.Fatal("no VmHWM")
	return 0
}

// saysTooLarge reports whether the log names the Service.
func (n *node) saysTooLarge(t *testing.T) bool {
	log, err := os.ReadFile(n.process.LogFile())
	if err != nil {
		t.Fatal(err)
	}
	return strings.Contains(string(log), "Service object limit exceeded")
}

// TestALargeServiceCostsOthersNothing: a tenant may write 24 KB that ask for 200,000 frontends.
// Nothing measurable changes for others at a start, at their changes and at a restart, and what
// the tenant's Service had before stays.
func TestALargeServiceCostsOthersNothing(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "sluice")
	cmd := exec.Command("go", "build", "-o", binary, "./cmd/sluice")
	cmd.Dir = filepath.Join("..", "..")
	if printed, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, printed)
	}
	for _, mode := range []string{"nftables", "iptables", "userspace"} {
		t.Run(mode, func(t *testing.T) {
			n := newNode(t, binary, mode)
			alone := n.start(t, shop(0), shop(19))
			n.stop(t, "without the large Service")

			n.addLarge(t, 800, 250)
			n.addShop(t, 20) // whose rules are not there yet
			with := n.start(t, shop(0), shop(20))
			if with > alone+promptly || !n.saysTooLarge(t) {
				t.Errorf("a start took %v without the large Service and %v with it; reported: %t", alone, with, n.saysTooLarge(t))
			}
			n.addShop(t, 21)
			added := n.await(t, shop(21), promptly)

			n.addLarge(t, 2, 2)
			n.await(t, external, promptly)
			n.addLarge(t, 800, 250)
			n.addShop(t, 22)
			after := n.await(t, shop(22), promptly)
			if time.Sleep(time.Second); !n.asks(t, external) {
				t.Error("what the large Service had before is gone")
			}
			memory := n.resident(t)
			n.stop(t, "with the large Service")

			n.addShop(t, 23)
			again := n.start(t, shop(0), shop(23))
			if again > alone+promptly {
				t.Errorf("a restart took %v, %v without the large Service", again, alone)
			}
			if mode != "userspace" && !n.asks(t, external) { // where nothing outlives the process
				t.Error("what the large Service had before is gone after a restart")
			}
			t.Logf("start: %v without the large Service, %v with it, restart %v; another Service: %v and %v; %d MiB",
				alone, with, again, added, after, memory)
			n.stop(t, "after a restart")
		})
	}
}
