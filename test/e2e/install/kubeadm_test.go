// SPDX-License-Identifier: Apache-2.0

//go:build install

package install

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/sluice-proxy/sluice/test/harness"
)

// kubeadm replaces Sluice by the DaemonSet that kubeadm makes, with the real kube-proxy. The mode
// changes with it, and kube-proxy removes the rules of the other mode before it writes its own, so
// nobody counts here.
func (s *site) kubeadm(t *testing.T) {
	s.Kubectl(t, "delete", "-f", s.manifest)
	// As docs/migrate.md says: in the same mode, nothing is lost in either direction.
	s.addKubeProxy(t, "iptables")
	s.grow(t)
}

// addKubeProxy adds the DaemonSet of kubeadm, with the configured mode, and waits for the proxy.
func (s *site) addKubeProxy(t *testing.T, mode string) {
	t.Helper()
	s.InstallKubeProxy(t, mode)
	s.mustRunKubeProxy(t)
}

// mustRunKubeProxy fails the test unless the real one runs.
func (s *site) mustRunKubeProxy(t *testing.T) {
	t.Helper()
	version, err := harness.KubernetesVersion()
	if err != nil {
		t.Fatal(err)
	}
	s.mustRun(t, "kube-proxy", "Kubernetes "+version, "iptables")
}

// swap gives kubeadm's DaemonSet the image of Sluice, and takes it back, with nothing else changed.
func (s *site) swap(t *testing.T) {
	s.undisturbed(t, func() {
		s.Kubectl(t, "-n", "kube-system", "set", "image", "daemonset/kube-proxy", "kube-proxy="+imageOf(oneVersion))
		s.AwaitRollout(t, "kube-proxy")
		s.mustRun(t, "kube-proxy", "sluice "+oneVersion, "iptables")
		s.grow(t)
	})
	s.undisturbed(t, func() {
		s.Kubectl(t, "-n", "kube-system", "rollout", "undo", "daemonset/kube-proxy")
		s.AwaitRollout(t, "kube-proxy")
		s.mustRunKubeProxy(t)
		s.grow(t)
	})
}

// takeOver moves the node from kubeadm's DaemonSet to Sluice's own by its label, and back.
func (s *site) takeOver(t *testing.T) {
	const label = "sluice.dev/proxy"
	overlay := s.overlay(t, "kubeadm")
	s.Kubectl(t, "-n", "kube-system", "patch", "daemonset/kube-proxy", "--patch-file", filepath.Join(top, "deploy", "kubeadm", "kube-proxy.yaml"))
	s.AwaitRollout(t, "kube-proxy")
	s.Kubectl(t, "apply", "-k", overlay)
	s.undisturbed(t, func() {
		s.Kubectl(t, "label", "node", harness.NodeName, label+"=sluice")
		s.mustRun(t, "sluice", "sluice "+oneVersion, "iptables")
		s.grow(t)
	})
	s.undisturbed(t, func() {
		s.Kubectl(t, "label", "node", harness.NodeName, label+"-")
		s.mustRunKubeProxy(t)
		s.grow(t)
	})
}

// overlay returns a folder of its own for an overlay of deploy/, with the image of the test.
func (s *site) overlay(t *testing.T, name string) string {
	t.Helper()
	dir := s.report.t.TempDir()
	whole, err := filepath.Abs(filepath.Join(top, "deploy", name))
	if err != nil {
		t.Fatal(err)
	}
	resource, err := filepath.Rel(dir, whole) // kubectl rejects an absolute name
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("resources: [%s]\nimages: [{name: sluice, newTag: %s}]\n", resource, oneVersion)
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}
