// SPDX-License-Identifier: Apache-2.0

//go:build install

package install

import (
	"testing"

	"github.com/sluice-proxy/sluice/test/harness"
)

// `kubectl apply` installs Sluice on a node, from an archive of `make image`, and its Services answer. It is rolled to
// another version and back. Then kubeadm's DaemonSet runs the real kube-proxy, and Sluice in its place with nothing but
// another image. Finally the node is moved to Sluice's own DaemonSet by its label, and back. No client notices any of
// it.
func TestInstall(t *testing.T) {
	report := newReport(t)
	report.step("build the programs", func(t *testing.T) {
		if err := harness.BuildForNodes(); err != nil {
			t.Fatal(err)
		}
	})
	var all images
	dir := t.TempDir()
	report.step("make image: two versions, kube-proxy's, the pods'", func(t *testing.T) { all = makeImages(t, dir) })
	var s *site
	report.prepare("a cluster with a node", func(t *testing.T) { s = newSite(t, report, all) })
	report.step("kubectl apply -f deploy/install.yaml", func(t *testing.T) { s.install(t) })
	report.step("services answer", func(t *testing.T) { s.services(t) })
	report.step("to another version and back", func(t *testing.T) { s.roll(t) })
	report.step("kubeadm's kube-proxy instead", func(t *testing.T) { s.kubeadm(t) })
	report.step("kubeadm's DaemonSet with the image of Sluice, and back", func(t *testing.T) { s.swap(t) })
	report.step("deploy/kubeadm: by the node's label, and back", func(t *testing.T) { s.takeOver(t) })
}
