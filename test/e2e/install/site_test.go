// SPDX-License-Identifier: Apache-2.0

//go:build install

package install

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-proxy/sluice/test/harness"
)

const (
	// The two versions differ in nothing but the names that they give themselves.
	oneVersion, otherVersion = "v0.0.1-test", "v0.0.2-test"
	// top is the repository.
	top = "../../.."
)

func imageOf(version string) string { return "sluice:" + version }

// site is a cluster that Sluice is installed in.
type site struct {
	*harness.NodeCluster
	podImage string
	report   *report
	manifest string  // deploy/install.yaml with the values of this site
	routes   []route // to the Service web
	replicas int     // of the pods behind it
	asked    int     // how often a container was asked
}

// route is a client and where it asks.
type route struct {
	client  *harness.Host
	targets []harness.Target
}

// images are the archives that the node gets, and the name of the pods' image.
type images struct {
	archives      []string
	pod, podImage string
}

// makeImages makes the images of both versions, of the real kube-proxy and of the pods.
func makeImages(t *testing.T, dir string) images {
	t.Helper()
	all := makeKubernetesImages(t, dir)
	for _, version := range []string{oneVersion, otherVersion} {
		if err := harness.MakeImage(version, dir); err != nil {
			t.Fatal(err)
		}
		archive := filepath.Join(dir, "sluice-"+version)
		all.archives = append(all.archives, archive+".tar", archive+"-static.tar")
	}
	return all
}

// makeKubernetesImages makes the images of the real kube-proxy and of the pods.
func makeKubernetesImages(t *testing.T, dir string) images {
	t.Helper()
	kubeProxy, err := harness.MakeKubeProxyImage(t, dir)
	if err != nil {
		t.Fatal(err)
	}
	all := images{archives: []string{kubeProxy}}
	if all.pod, all.podImage, err = harness.MakePodImage(dir); err != nil {
		t.Fatal(err)
	}
	return all
}

func newSite(t *testing.T, r *report, all images) *site {
	s := &site{report: r, podImage: all.podImage, NodeCluster: harness.NewNodeCluster(t, 1, all.podImage, all.pod)}
	for _, archive := range all.archives {
		s.Import(t, archive)
	}
	return s
}

func (s *site) install(t *testing.T) {
	s.manifest = filepath.Join(s.report.t.TempDir(), "install.yaml")
	s.InstallSluice(t, s.manifest, imageOf(oneVersion), "")
}

// services starts the pods behind a Service and asks from everywhere: from pods, by its cluster IPs,
// and from outside, by its node ports.
func (s *site) services(t *testing.T) {
	s.Kubectl(t, "apply", "-f", "testdata/web.yaml")
	s.Kubectl(t, "rollout", "status", "deployment/web", "--timeout="+harness.RolloutMax)
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
	s.replicas = 2
	s.awaitAnswers(t)
	s.askFromPod(t, inside)
}

// awaitAnswers waits until each client gets answers from each pod of the Service, and from no other.
func (s *site) awaitAnswers(t *testing.T) {
	t.Helper()
	harness.Eventually(t, "the service answers everywhere", func(ctx context.Context) error {
		pods, err := s.Client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{LabelSelector: "app=web"})
		if err != nil {
			return err
		}
		var names []string
		for _, pod := range pods.Items {
			names = append(names, pod.Name)
		}
		if len(names) != s.replicas {
			return fmt.Errorf("it has the pods %v, want %d", names, s.replicas)
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
		s.Kubectl(t, "run", name, "--image="+s.podImage, "--restart=Never", "--", "ask", target.Network, target.Addr.String(), "10")
	}
	s.Kubectl(t, append([]string{"wait", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=" + harness.RolloutMax}, pods...)...)
}
