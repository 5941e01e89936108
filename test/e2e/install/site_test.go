//go:build install

package install

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

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
	dir      string // of the archives
	report   *report
	manifest string  // deploy/install.yaml with the values of this site
	routes   []route // to the Service web
	asked    int     // how often a container was asked
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
	err := errors.Join(
		harness.PodArchive(podImage, filepath.Join(dir, "pod.tar")),
		harness.KubeProxyArchive(filepath.Join(dir, "kube-proxy.tar")))
	if err != nil {
		t.Fatal(err)
	}
}

func newSite(t *testing.T, r *report, images string) *site {
	s := &site{report: r, dir: images, NodeCluster: harness.NewNodeCluster(t, podImage, filepath.Join(images, "pod.tar"))}
	for _, version := range []string{oneVersion, otherVersion} {
		s.Import(t, filepath.Join(images, "sluice-"+version+".tar"))
	}
	s.Import(t, filepath.Join(images, "kube-proxy.tar"))
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
	s.manifest = filepath.Join(s.dir, "install.yaml")
	if err := os.WriteFile(s.manifest, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Log(s.Kubectl(t, "apply", "-f", s.manifest))
	s.awaitRollout(t, "sluice")
}

// awaitRollout waits until the DaemonSet's pods of the present version are ready.
func (s *site) awaitRollout(t *testing.T, daemonSet string) {
	t.Helper()
	words := []string{"-n", "kube-system", "rollout", "status", "daemonset/" + daemonSet, "--timeout=" + rolloutMax}
	if printed, err := s.TryKubectl(t, words...); err != nil {
		t.Log(s.Kubectl(t, "describe", "nodes"))
		t.Log(s.Kubectl(t, "-n", "kube-system", "describe", "pods"))
		t.Log(s.OnNode(t, "sh", "-c", "tail -n 20 /var/log/pods/*/*/*.log"))
		t.Fatalf("%v\n%s", err, printed)
	}
}

// services starts the pods behind a Service and asks from everywhere: from pods, by its cluster IPs,
// and from outside, by its node ports.
func (s *site) services(t *testing.T) {
	s.Kubectl(t, "apply", "-f", "testdata/web.yaml")
	s.Kubectl(t, "rollout", "status", "deployment/web", "--timeout="+rolloutMax)
	web, err := s.Client.CoreV1().Services("default").Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	inside, err := harness.ClusterIPs(web)
	if err != nil {
		t.Fatal(err)
	}
	outside, err := harness.NodePorts(web, s.N1)
	if err != nil {
		t.Fatal(err)
	}
	s.routes = []route{{s.P1, inside}, {s.X, outside}}
	s.awaitAnswers(t, 2)
	s.askFromPod(t, inside)
}

// awaitAnswers waits until each client gets answers from each pod of the Service, and from no other.
func (s *site) awaitAnswers(t *testing.T, replicas int) {
	t.Helper()
	harness.Eventually(t, settleMax, "the service answers everywhere", func(ctx context.Context) error {
		pods, err := s.Client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{LabelSelector: "app=web"})
		if err != nil {
			return err
		}
		var names []string
		for _, pod := range pods.Items {
			names = append(names, pod.Name)
		}
		if len(names) != replicas {
			return fmt.Errorf("it has the pods %v, want %d", names, replicas)
		}
		for _, r := range s.routes {
			for _, target := range r.targets {
				if err := r.client.ReachNames(ctx, target, names...); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// askFromPod asks each target from a pod of its own, by the network that the kubelet gave it.
func (s *site) askFromPod(t *testing.T, targets []harness.Target) {
	t.Helper()
	var pods []string
	for i, target := range targets {
		name := fmt.Sprintf("client-%d", i)
		pods = append(pods, "pod/"+name)
		s.Kubectl(t, "run", name, "--image="+podImage, "--restart=Never", "--", "ask", target.Network, target.Addr.String(), "10")
	}
	s.Kubectl(t, append([]string{"wait", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=" + rolloutMax}, pods...)...)
}
