//go:build install

package install

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-proxy/sluice/test/e2e/harness"
)

// kubeadmConfig is what `kubeadm init` would have been given.
const kubeadmConfig = `apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
kubernetesVersion: VERSION
controlPlaneEndpoint: SERVER
networking: {podSubnet: "10.244.0.0/16,fd00:244:1::/48"}
---
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: ""
# Its size can be set in the machine's first network namespace only.
conntrack: {maxPerCore: 0}
`

// kubeadm replaces Sluice by the DaemonSet that kubeadm makes, with the real kube-proxy.
func (s *site) kubeadm(t *testing.T) {
	version, err := harness.KubernetesVersion()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "kubeadm.yaml")
	text := strings.NewReplacer("VERSION", version, "SERVER", s.APIServer().String()).Replace(kubeadmConfig)
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	s.undisturbed(t, func() {
		s.Kubectl(t, "delete", "-f", s.manifest)
		t.Log(s.Kubeadm(t, "init", "phase", "addon", "kube-proxy", "--config", file, "--kubeconfig", s.AdminKubeconfig()))
		s.awaitRollout(t, "kube-proxy")
		if said := s.versionInPod(t, "kube-proxy"); strings.TrimSpace(said) != "Kubernetes "+version {
			t.Fatalf("kube-proxy's pod runs %q, want Kubernetes %s", said, version)
		}
		s.grow(t)
	})
}

// swap gives kubeadm's DaemonSet the image of Sluice, and takes it back, with nothing else changed.
func (s *site) swap(t *testing.T) {
	version, err := harness.KubernetesVersion()
	if err != nil {
		t.Fatal(err)
	}
	s.undisturbed(t, func() {
		s.Kubectl(t, "-n", "kube-system", "set", "image", "daemonset/kube-proxy", "kube-proxy="+imageOf(oneVersion))
		s.awaitRollout(t, "kube-proxy")
		s.mustRun(t, "kube-proxy", oneVersion)
		s.grow(t)
	})
	s.undisturbed(t, func() {
		s.Kubectl(t, "-n", "kube-system", "rollout", "undo", "daemonset/kube-proxy")
		s.awaitRollout(t, "kube-proxy")
		if said := s.versionInPod(t, "kube-proxy"); strings.TrimSpace(said) != fmt.Sprintf("Kubernetes %s", version) {
			t.Fatalf("kube-proxy's pod runs %q, want Kubernetes %s", said, version)
		}
		s.grow(t)
	})
}
