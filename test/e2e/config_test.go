package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-proxy/sluice/test/e2e/harness"
)

// A configuration file may change while the proxy runs. The same process applies a valid one, and
// rejects an invalid one with the place of the mistake; the node serves as before.
func TestConfigurationChanges(t *testing.T) {
	for _, way := range []struct {
		name string
		at   func(folder string) (path string, set func(text string) error)
	}{
		{"file", func(folder string) (string, func(string) error) {
			path := filepath.Join(folder, "config.yaml")
			return path, func(text string) error { return os.WriteFile(path, []byte(text), 0o644) }
		}},
		{"configmap", func(folder string) (string, func(string) error) {
			mounted := harness.NewConfigMap(folder)
			return mounted.Path(), mounted.Set
		}},
	} {
		t.Run(way.name, func(t *testing.T) {
			inEachMode(t, func(t *testing.T, mode harness.Mode) {
				path, set := way.at(t.TempDir())
				testConfiguration(t, mode, path, set)
			})
		})
	}
}

// Lines of the configuration file. The node has addresses in both ranges, of which only those in
// the first are its Node object's.
const (
	clusterCIDR  = "clusterCIDR: " + harness.PodCIDRs
	otherCIDR    = "clusterCIDR: 10.244.2.0/24,fd00:244:2::/48" // of the pods on the other node
	mainRange    = `nodePortAddresses: ["10.10.0.0/24", "fd00:10:10::/64"]`
	otherRange   = `nodePortAddresses: ["10.20.0.0/24", "fd00:10:20::/64"]`
	noRange      = `nodePortAddresses: ["10.20.0.0/24", "everywhere"]`
	changedField = "nodePortAddresses"
)

func testConfiguration(t *testing.T, mode harness.Mode, path string, set func(string) error) {
	c := harness.NewCluster(t)
	write := func(lines ...string) {
		t.Helper()
		if err := set(c.Configuration(mode, lines...)); err != nil {
			t.Fatal(err)
		}
	}
	write(clusterCIDR, mainRange)
	proxy := c.StartProxyWithConfig(path)
	web := c.CreateService("web", corev1.ServiceTypeNodePort)
	c.SetEndpoints("web", c.A, c.B)
	clients := []*harness.Host{c.X}
	main := nodePorts(t, web, c.N1)
	// The router has the address before the leaf's on each cable.
	other, err := harness.NodePortsAt(web, c.N2.V4.Prev(), c.N2.V6.Prev())
	if err != nil {
		t.Fatal(err)
	}
	reachAll(t, startMax, "node ports answer in the main range", clients, main, c.A, c.B)
	unreachableAll(t, changeMax, "and not in the other", clients, other)

	write(clusterCIDR, otherRange)
	reachAll(t, changeMax, "node ports answer in the other range", clients, other, c.A, c.B)
	unreachableAll(t, changeMax, "and no longer in the main one", clients, main)
	awaitChanged(t, c, proxy, changedField, "10.20.0.0/24")

	before := settled(t, c, proxy)
	write(clusterCIDR, noRange)
	awaitRejection(t, c, proxy, fmt.Sprintf("%s:%d: nodePortAddresses", path, lineOf(t, path, noRange)))
	before.mustBeUntouched(t, "after a file with a mistake")
	reachAll(t, changeMax, "node ports answer as before the mistake", clients, other, c.A, c.B)

	awaitSource(t, c, clusterIPs(t, web), true, "pods see the client pod itself")
	write(otherCIDR, mainRange)
	reachAll(t, changeMax, "the mistake mended: node ports answer in the main range", clients, main, c.A, c.B)
	awaitSource(t, c, clusterIPs(t, web), false, "pods see the node: the client pod is not in the new ranges")
	awaitChanged(t, c, proxy, "clusterCIDR", "10.244.2.0/24")
	if !proxy.Running() {
		t.Error("the proxy ended")
	}
}

// awaitSource waits until the pods behind a Service see the packets of a pod come from itself or,
// when its address is outside the ranges of pods, from the node.
func awaitSource(t *testing.T, c *harness.Cluster, targets []harness.Target, itself bool, what string) {
	t.Helper()
	harness.Eventually(t, changeMax, what, func(ctx context.Context) error {
		for _, target := range targets {
			answer, err := c.P1.Ask(ctx, target.Network, target.Addr)
			if err != nil {
				return err
			}
			source := answer.Client.Addr()
			if (source == c.P1.V4 || source == c.P1.V6) != itself {
				return fmt.Errorf("%s: the client seems to be %s", target, source)
			}
		}
		return nil
	})
}

// awaitChanged waits until the log says that a field has a new value that contains the text.
func awaitChanged(t *testing.T, c *harness.Cluster, proxy *harness.Proxy, field, value string) {
	t.Helper()
	harness.Eventually(t, changeMax, "the log reports the change of "+field, func(context.Context) error {
		changed := c.Log(proxy).Changed
		for _, change := range changed {
			if change.Field == field && strings.Contains(change.To, value) && !strings.Contains(change.From, value) {
				return nil
			}
		}
		return fmt.Errorf("applied: %+v", changed)
	})
}

// awaitRejection waits until the log and an event of the node say what is wrong, and where.
func awaitRejection(t *testing.T, c *harness.Cluster, proxy *harness.Proxy, place string) {
	t.Helper()
	harness.Eventually(t, changeMax, "the log reports the mistake", func(context.Context) error {
		rejected := c.Log(proxy).Rejected
		if len(rejected) == 0 || !strings.Contains(rejected[len(rejected)-1].Problem, place) {
			return fmt.Errorf("rejected: %+v, want one with %q", rejected, place)
		}
		return nil
	})
	event := awaitEvent(t, c, "ConfigurationRejected")
	if event.Regarding.Kind != "Node" || event.Regarding.Name != harness.NodeName || event.Type != corev1.EventTypeWarning {
		t.Errorf("event ConfigurationRejected: %s, regarding %+v", event.Type, event.Regarding)
	}
	if !strings.Contains(event.Note, place) {
		t.Errorf("event ConfigurationRejected: %q, want it to contain %q", event.Note, place)
	}
}

// lineOf returns the number of a line of a file.
func lineOf(t *testing.T, path, line string) int {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, _, found := strings.Cut(string(text), "\n"+line+"\n")
	if !found {
		t.Fatalf("%s has no line %q", path, line)
	}
	return strings.Count(before, "\n") + 2 // lines count from 1, and the line break before it is cut off
}
