// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/test/process"
)

// Where a [NodeCluster] has the pods of node number %d, which the routes to the fixed pods do not hold.
const (
	nodePodCIDR4 = "10.244.%d.128/25"
	nodePodCIDR6 = "fd00:244:%d::1:0/112"
)

// ClusterDNS is where the pods of a [NodeCluster] look for a DNS server.
const ClusterDNS = "172.30.0.10"

// NodeCluster is the network of a [Cluster] with a whole control plane in API, and nodes with
// containerd and a kubelet: N1, N2 if there are two, and further nodes that N1 routes to like N2. The
// pods of the picture exist, but the API does not know them.
type NodeCluster struct {
	*Network
	Server *APIServer
	Client kubernetes.Interface

	t        testing.TB
	logs     string
	programs string // directory of Kubernetes' programs
	nodes    []*clusterNode
}

// clusterNode is a node of a [NodeCluster].
type clusterNode struct {
	*Host
	daemon *process.Daemon
	pid    int // of the node's first process
}

// NewNodeCluster starts a cluster whose nodes are ready for pods. It ends with the test.
func NewNodeCluster(t testing.TB, nodes int, pauseImage, pauseArchive string) *NodeCluster {
	t.Helper()
	c := &NodeCluster{t: t, logs: t.ArtifactDir()}
	var err error
	if c.programs, err = published(); err != nil {
		t.Fatal(err)
	}
	c.Network = networkFor(t)
	for i := range nodes {
		host, err := c.nodeHost(i)
		if err != nil {
			t.Fatal(err)
		}
		c.nodes = append(c.nodes, &clusterNode{Host: host})
	}
	c.startControlPlane()
	for i := range c.nodes {
		c.startNode(i, pauseImage)
	}
	for _, node := range c.nodes {
		c.awaitNode(node)
	}
	c.Import(t, pauseArchive)
	return c
}

// nodeHost returns the host of a node, counted from 0. It adds the third and later ones to the network.
func (c *NodeCluster) nodeHost(i int) (*Host, error) {
	if i < 2 {
		return []*Host{c.N1, c.N2}[i], nil
	}
	name := nodeName(i)
	cable := netns.Cable{Router: NodeName, Leaf: name, Port: name,
		AtRouter: netns.Prefixes(fmt.Sprintf("10.40.%d.1/24", i), fmt.Sprintf("fd00:10:40:%d::1/64", i)),
		AtLeaf:   netns.Prefixes(fmt.Sprintf("10.40.%d.2/24", i), fmt.Sprintf("fd00:10:40:%d::2/64", i))}
	if err := c.Attach(cable); err != nil {
		return nil, err
	}
	host := &Host{Namespace: c.Hosts[name], V4: cable.AtLeaf[0].Addr(), V6: cable.AtLeaf[1].Addr()}
	return host, errors.Join(
		c.N1.AddRoute(podCIDRs(i)[0], host.V4),
		c.N1.AddRoute(podCIDRs(i)[1], host.V6))
}

// nodeName returns the name of a node, counted from 0.
func nodeName(i int) string { return fmt.Sprintf("n%d", i+1) }

// podCIDRs returns where a node has its pods.
func podCIDRs(i int) []netip.Prefix {
	return netns.Prefixes(fmt.Sprintf(nodePodCIDR4, i+1), fmt.Sprintf(nodePodCIDR6, i+1))
}

func (c *NodeCluster) startControlPlane() {
	c.t.Helper()
	address := netip.AddrPortFrom(c.API.V4, apiServerPort)
	server := NewAPIServer(APIServerProgram(c.t), c.API.Namespace, address, filepath.Join(c.t.TempDir(), "control-plane"), c.logs)
	c.Server = server
	for i := range c.nodes {
		server.nodes = append(server.nodes, nodeName(i))
	}
	c.t.Cleanup(func() { end(c.t, server.Process()) })
	if err := server.Start(); err != nil {
		c.t.Fatal(err)
	}
	var err error
	if c.Client, err = server.Client(); err != nil {
		c.t.Fatal(err)
	}
	c.startProgram("kube-controller-manager", c.API,
		"--kubeconfig="+server.credential("controllers.kubeconfig"),
		"--use-service-account-credentials",
		"--service-account-private-key-file="+server.credential("service-account.key"),
		"--root-ca-file="+server.credential("ca.crt"),
		"--leader-elect=false")
	c.startProgram("kube-scheduler", c.API,
		"--kubeconfig="+server.credential("scheduler.kubeconfig"),
		"--leader-elect=false")
}

// startProgram starts one of Kubernetes' programs until the end of the test.
func (c *NodeCluster) startProgram(name string, host *Host, args ...string) {
	c.t.Helper()
	log := filepath.Join(c.logs, name+".log")
	process, err := process.StartDaemon(host.Namespace, log, exec.Command(filepath.Join(c.programs, name), args...))
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { end(c.t, process) })
}

func (c *NodeCluster) startNode(i int, pauseImage string) {
	c.t.Helper()
	binary, err := nodeBinary()
	if err != nil {
		c.t.Fatal(err)
	}
	node, name := c.nodes[i], nodeName(i)
	logs := filepath.Join(c.logs, name)
	if err := os.MkdirAll(logs, 0o755); err != nil {
		c.t.Fatal(err)
	}
	node.daemon, err = process.StartDaemon(node.Namespace, filepath.Join(logs, "node.log"), exec.Command(binary,
		"--name", name,
		"--address", node.V4.String()+","+node.V6.String(),
		"--pod-cidr", podCIDRs(i)[0].String()+","+podCIDRs(i)[1].String(),
		"--kubelet", filepath.Join(c.programs, "kubelet"),
		"--kubeconfig", c.Server.credential("node-"+name+".kubeconfig"),
		"--cluster-dns", ClusterDNS,
		"--client-ca", c.Server.credential("ca.crt"),
		"--pause-image", pauseImage,
		"--logs", logs))
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() {
		c.keepPodLogs(node, logs)
		if node.daemon.Running() {
			if err := node.daemon.Stop(); err != nil {
				c.t.Error(err)
			}
		}
		if c.t.Failed() {
			c.t.Logf("%s ends with:\n%s", node.daemon.LogFile(), node.daemon.Tail(shownMax))
		}
	})
	Eventually(c.t, "node "+name+" runs", func(context.Context) error {
		c.mustLive(node)
		said, err := os.ReadFile(node.daemon.LogFile())
		if err != nil {
			return err
		}
		line, _, found := strings.Cut(string(said), "\n")
		if !found {
			return errors.New("it has said nothing")
		}
		if node.pid, err = strconv.Atoi(strings.TrimPrefix(line, "pid ")); err != nil {
			return fmt.Errorf("it says %q", line)
		}
		_, err = os.Stat(fmt.Sprintf("/proc/%d/root/run/containerd/containerd.sock", node.pid))
		return err
	})
}

// mustLive fails the test if a node ended.
func (c *NodeCluster) mustLive(node *clusterNode) {
	c.t.Helper()
	if !node.daemon.Running() {
		c.t.Fatalf("the node ended: %s\n%s", node.daemon.End(), node.daemon.Tail(shownMax))
	}
}

func (c *NodeCluster) awaitNode(node *clusterNode) {
	c.t.Helper()
	Eventually(c.t, "node "+node.Name()+" is ready", func(ctx context.Context) error {
		c.mustLive(node)
		node, err := c.Client.CoreV1().Nodes().Get(ctx, node.Name(), metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, condition := range node.Status.Conditions {
			if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue {
				return nil
			}
		}
		return fmt.Errorf("its conditions are %v", node.Status.Conditions)
	})
}

// keepPodLogs copies what the pods of a node have printed to a directory. When the test has failed, it
// shows the end of what those of the system have.
func (c *NodeCluster) keepPodLogs(node *clusterNode, dir string) {
	logs := os.DirFS(fmt.Sprintf("/proc/%d/root/var/log/pods", node.pid))
	if err := os.CopyFS(filepath.Join(dir, "pods"), logs); err != nil {
		c.t.Logf("logs of the pods: %v", err) // a node that has ended has none
	}
	if !c.t.Failed() {
		return
	}
	files, _ := fs.Glob(logs, "kube-system_*/*/*.log") // the pattern is valid
	for _, file := range files {
		content, err := fs.ReadFile(logs, file)
		if err != nil {
			c.t.Log(err)
		}
		lines := strings.Split(strings.TrimSpace(string(content)), "\n")
		c.t.Logf("%s ends with:\n%s", file, strings.Join(lines[max(0, len(lines)-shownMax):], "\n"))
	}
}

// OnNode runs a command in the namespaces of N1's node and returns what it printed.
func (c *NodeCluster) OnNode(t testing.TB, words ...string) string {
	t.Helper()
	return c.nodes[0].run(t, words...)
}

func (n *clusterNode) run(t testing.TB, words ...string) string {
	t.Helper()
	return must(t)(run(t, nil, "nsenter", append([]string{"--target", strconv.Itoa(n.pid), "--mount", "--pid", "--net", "--"}, words...)))
}

// Import loads an image from an OCI archive on each node. The part of containerd that serves the
// kubelet hears of it only once it is ready, and so are the nodes.
func (c *NodeCluster) Import(t testing.TB, archive string) {
	t.Helper()
	for _, node := range c.nodes {
		node.run(t, "ctr", "--namespace", "k8s.io", "images", "import", archive)
	}
}

// Tag gives an image further names on each node.
func (c *NodeCluster) Tag(t testing.TB, image string, names ...string) {
	t.Helper()
	for _, node := range c.nodes {
		node.run(t, append([]string{"ctr", "--namespace", "k8s.io", "images", "tag", image}, names...)...)
	}
}

// Kubectl runs kubectl with every right, outside the cluster, and returns what it printed.
func (c *NodeCluster) Kubectl(t testing.TB, words ...string) string {
	t.Helper()
	return must(t)(c.TryKubectl(t, words...))
}

// TryKubectl is Kubectl that may fail.
func (c *NodeCluster) TryKubectl(t testing.TB, words ...string) (string, error) {
	words = append([]string{"--kubeconfig", c.AdminKubeconfig()}, words...)
	return run(t, c.API, filepath.Join(c.programs, "kubectl"), words)
}

// Kubeadm runs kubeadm in the API server's namespace and returns what it printed.
func (c *NodeCluster) Kubeadm(t testing.TB, words ...string) string {
	t.Helper()
	return must(t)(run(t, c.API, filepath.Join(c.programs, "kubeadm"), words))
}

// KubectlPath names the program kubectl.
func (c *NodeCluster) KubectlPath() string { return filepath.Join(c.programs, "kubectl") }

// AdminKubeconfig names a file for a client that may do everything.
func (c *NodeCluster) AdminKubeconfig() string { return c.Server.credential("admin.kubeconfig") }

// APIServer returns where the API server answers.
func (c *NodeCluster) APIServer() netip.AddrPort { return c.Server.address }

// must returns what a command printed, or ends the test.
func must(t testing.TB) func(string, error) string {
	return func(printed string, err error) string {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return printed
	}
}

// commandMax bounds one command; those that wait have a shorter limit.
const commandMax = 5 * time.Minute

// run runs a command on a host, or on this machine if that is nil. What it printed is in the error.
func run(t testing.TB, host *Host, program string, args []string) (string, error) {
	ctx, cancel := context.WithTimeout(t.Context(), commandMax)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	var printed []byte
	var err error
	if host == nil {
		printed, err = cmd.CombinedOutput()
	} else {
		err = host.Do(func() error {
			var err error
			printed, err = cmd.CombinedOutput()
			return err
		})
	}
	if err != nil {
		err = fmt.Errorf("%s %s: %w\n%s", filepath.Base(program), strings.Join(args, " "), err, printed)
	}
	return string(printed), err
}
