//go:build install

package install

import (
	"testing"
	"time"
)

// A node with containerd and a kubelet gets Sluice by `kubectl apply`, from an archive of `make
// image`. Its Services answer, the image is rolled to another version and back, and kubeadm's own
// DaemonSet runs it as kube-proxy. No client notices any of it.
func TestInstall(t *testing.T) {
	report := newReport(t)
	var s *site
	report.step("build the programs", func(t *testing.T) { buildAll(t) })
	images := t.TempDir()
	report.step("make image, two versions", func(t *testing.T) { makeImages(t, images) })
	report.step("a cluster with a node", func(t *testing.T) { s = newSite(report.t, report, images) })
	report.step("kubectl apply -f deploy/install.yaml", func(t *testing.T) { s.install(t) })
	report.step("services answer", func(t *testing.T) { s.services(t) })
	report.step("to another version and back", func(t *testing.T) { s.roll(t) })
	report.step("kubeadm's kube-proxy instead", func(t *testing.T) { s.kubeadm(t) })
	report.step("kubeadm's DaemonSet with the image of Sluice, and back", func(t *testing.T) { s.swap(t) })
}

// rolloutMax bounds a rollout on one node; five seconds are usual.
const rolloutMax = "90s"

const settleMax = 90 * time.Second
