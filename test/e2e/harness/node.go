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
)

// Where a [NodeCluster] has its pods, which N1's routes to the fixed pods do not hold.
const (
	nodePodCIDR4 = "10.244.1.128/25"
	nodePodCIDR6 = "fd00:244:1::1:0/112"
)

// NodeCluster is the network of a [Cluster] with a whole control plane in API and a node with
// containerd and a kubelet in N1. The pods of the picture exist, but the API does not know them.
type NodeCluster struct {
	*Network
	Server *APIServer
	Client kubernetes.Interface

	t        testing.TB
	logs     string
	programs string // directory of Kubernetes' programs
	node     *netns.Daemon
	pid      int // of the node's first process
}

// NewNodeCluster starts a cluster whose node is ready for pods. It ends with the test.
func NewNodeCluster(t testing.TB, pauseImage, pauseArchive string) *NodeCluster {
	t.Helper()
	c := &NodeCluster{t: t, logs: t.ArtifactDir()}
	var err error
	if c.programs, err = published(); err != nil {
		t.Fatal(err)
	}
	if c.Network, err = NewNetwork(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Network.Close(); err != nil {
			t.Error(err)
		}
	})
	c.startControlPlane()
	c.startNode(pauseImage)
	c.awaitNode()
	c.Import(t, pauseArchive)
	return c
}

func (c *NodeCluster) startControlPlane() {
	c.t.Helper()
	address := netip.AddrPortFrom(c.API.V4, apiServerPort)
	server, err := NewAPIServer(c.API.Namespace, address, filepath.Join(c.t.TempDir(), "control-plane"), c.logs)
	if err != nil {
		c.t.Fatal(err)
	}
	c.Server, server.node = server, NodeName
	c.t.Cleanup(func() { c.end(server.Process()) })
	if err := server.Start(); err != nil {
		c.t.Fatal(err)
	}
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
	process, err := netns.StartDaemon(host.Namespace, log, exec.Command(filepath.Join(c.programs, name), args...))
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { c.end(process) })
}

func (c *NodeCluster) startNode(pauseImage string) {
	c.t.Helper()
	binary, err := nodeBinary()
	if err != nil {
		c.t.Fatal(err)
	}
	c.node, err = netns.StartDaemon(c.N1.Namespace, filepath.Join(c.logs, "node.log"), exec.Command(binary,
		"--name", NodeName,
		"--address", c.N1.V4.String()+","+c.N1.V6.String(),
		"--pod-cidr", nodePodCIDR4+","+nodePodCIDR6,
		"--kubelet", filepath.Join(c.programs, "kubelet"),
		"--kubeconfig", c.Server.credential("node.kubeconfig"),
		"--client-ca", c.Server.credential("ca.crt"),
		"--pause-image", pauseImage,
		"--logs", c.logs))
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() {
		c.keepPodLogs()
		if c.node.Running() {
			if err := c.node.Stop(); err != nil {
				c.t.Error(err)
			}
		}
		if c.t.Failed() {
			c.t.Logf("%s ends with:\n%s", c.node.LogFile(), c.node.Tail(shownMax))
		}
	})
	Eventually(c.t, time.Minute, "the node runs", func(context.Context) error {
		if !c.node.Running() {
			c.t.Fatalf("the node ended: %s\n%s", c.node.End(), c.node.Tail(shownMax))
		}
		said, err := os.ReadFile(c.node.LogFile())
		if err != nil {
			return err
		}
		line, _, found := strings.Cut(string(said), "\n")
		if !found {
			return errors.New("it has said nothing")
		}
		if c.pid, err = strconv.Atoi(strings.TrimPrefix(line, "pid ")); err != nil {
			return fmt.Errorf("it says %q", line)
		}
		_, err = os.Stat(fmt.Sprintf("/proc/%d/root/run/containerd/containerd.sock", c.pid))
		return err
	})
}

func (c *NodeCluster) awaitNode() {
	c.t.Helper()
	Eventually(c.t, 2*time.Minute, "the node is ready", func(ctx context.Context) error {
		if !c.node.Running() {
			c.t.Fatalf("the node ended: %s\n%s", c.node.End(), c.node.Tail(shownMax))
		}
		node, err := c.Client.CoreV1().Nodes().Get(ctx, NodeName, metav1.GetOptions{})
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

// keepPodLogs copies what the pods have printed to the directory of the logs. When the test has failed,
// it shows the end of what those of the system have.
func (c *NodeCluster) keepPodLogs() {
	logs := os.DirFS(fmt.Sprintf("/proc/%d/root/var/log/pods", c.pid))
	if err := os.CopyFS(filepath.Join(c.logs, "pods"), logs); err != nil {
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

// OnNode runs a command in the node's namespaces and returns what it printed.
func (c *NodeCluster) OnNode(t testing.TB, words ...string) string {
	t.Helper()
	return must(t)(run(t, nil, "nsenter", append([]string{"--target", strconv.Itoa(c.pid), "--mount", "--pid", "--net", "--"}, words...)))
}

// Import loads an image from an OCI archive. The part of containerd that serves the kubelet hears of
// it only once it is ready, and so is the node.
func (c *NodeCluster) Import(t testing.TB, archive string) {
	t.Helper()
	c.OnNode(t, "ctr", "--namespace", "k8s.io", "images", "import", archive)
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

// end kills what still runs at the end of the test, and shows its log when the test has failed.
func (c *NodeCluster) end(p *netns.Daemon) {
	if p == nil {
		return
	}
	if err := p.Kill(); err != nil {
		c.t.Error(err)
	}
	if c.t.Failed() {
		c.t.Logf("%s (go test -artifacts keeps it) ends with:\n%s", p.LogFile(), p.Tail(shownMax))
	}
}
