//go:build install

package install

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-proxy/sluice/test/e2e/harness"
)

const (
	podImage = "sluice.test/pod:1"
	// The two releases have the same code and say different names.
	oneVersion, otherVersion = "v0.0.1-test", "v0.0.2-test"
	// top is the repository.
	top = "../../.."
)

func imageOf(version string) string { return "sluice:" + version }

// site is a cluster that Sluice is installed in.
type site struct {
	*harness.NodeCluster
	web     *corev1.Service
	clients []route
}

// route is a client and where it asks.
type route struct {
	client  *harness.Host
	targets []harness.Target
}

func buildAll(t *testing.T) {
	if err := harness.BuildForNodes(); err != nil {
		t.Fatal(err)
	}
}

// makeImages writes the archives of both versions and of the pods' program to a folder.
func makeImages(t *testing.T, dir string) {
	for _, version := range []string{oneVersion, otherVersion} {
		cmd := exec.Command("make", "-C", top, "image", "ARCH="+runtime.GOARCH, "VERSION="+version, "OUT="+dir)
		if printed, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", cmd, err, printed)
		}
	}
	if err := harness.PodArchive(podImage, filepath.Join(dir, "pod.tar")); err != nil {
		t.Fatal(err)
	}
}

func newSite(t *testing.T, images string) *site {
	s := &site{NodeCluster: harness.NewNodeCluster(t, podImage, filepath.Join(images, "pod.tar"))}
	for _, version := range []string{oneVersion, otherVersion} {
		s.Import(filepath.Join(images, "sluice-"+version+".tar"))
	}
	return s
}

// install follows the comment at the top of deploy/install.yaml.
func (s *site) install(t *testing.T) {
	manifest, err := os.ReadFile(filepath.Join(top, "deploy", "install.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	text := string(manifest)
	for _, change := range [][2]string{
		{"sluice:latest", imageOf(oneVersion)},
		{"CONTROL_PLANE:6443", s.APIServer().String()},
		{`clusterCIDR: ""`, fmt.Sprintf("clusterCIDR: %q", harness.PodCIDRs) +
			// Its size can be set in the machine's first network namespace only.
			"\n    conntrack: {maxPerCore: 0}"},
	} {
		if !strings.Contains(text, change[0]) {
			t.Fatalf("deploy/install.yaml has no %q", change[0])
		}
		text = strings.ReplaceAll(text, change[0], change[1])
	}
	file := filepath.Join(t.TempDir(), "install.yaml")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Log(s.Kubectl("apply", "-f", file))
	s.awaitRollout(t, "sluice")
}

// awaitRollout waits until the DaemonSet's pods of the present version are ready.
func (s *site) awaitRollout(t *testing.T, daemonSet string) {
	t.Helper()
	words := []string{"-n", "kube-system", "rollout", "status", "daemonset/" + daemonSet, "--timeout=" + rolloutMax}
	if printed, err := s.TryKubectl(words...); err != nil {
		t.Log(s.Kubectl("describe", "nodes"))
		t.Log(s.Kubectl("-n", "kube-system", "describe", "pods"))
		t.Log(s.OnNode("sh", "-c", "tail -n 20 /var/log/pods/*/*/*.log"))
		t.Fatalf("%v\n%s", err, printed)
	}
}

// services starts the pods behind a Service and asks from everywhere: from pods, by its cluster IPs,
// and from outside, by its node ports.
func (s *site) services(t *testing.T) {
	s.Kubectl("apply", "-f", "testdata/web.yaml")
	s.Kubectl("rollout", "status", "deployment/web", "--timeout="+rolloutMax)
	var err error
	if s.web, err = s.Client.CoreV1().Services("default").Get(t.Context(), "web", metav1.GetOptions{}); err != nil {
		t.Fatal(err)
	}
	inside, err := harness.ClusterIPs(s.web)
	if err != nil {
		t.Fatal(err)
	}
	outside, err := harness.NodePorts(s.web, s.N1)
	if err != nil {
		t.Fatal(err)
	}
	s.clients = []route{{s.P1, inside}, {s.X, outside}}
	pods := s.pods(t, "app=web")
	harness.Eventually(t, settleMax, "the service answers everywhere", func(ctx context.Context) error {
		for _, r := range s.clients {
			for _, target := range r.targets {
				if err := r.client.ReachNames(ctx, target, pods...); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// pods returns the names of the pods with a label.
func (s *site) pods(t *testing.T, label string) []string {
	t.Helper()
	list, err := s.Client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: label})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, pod := range list.Items {
		names = append(names, pod.Name)
	}
	slices.Sort(names)
	return names
}

var _ netip.Addr
