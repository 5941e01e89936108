//go:build install

package install

import (
	"path/filepath"
	"testing"

	"github.com/sluice-proxy/sluice/test/e2e/harness"
)

const podImage = "sluice.test/pod:1"

func TestInstall(t *testing.T) {
	pod := filepath.Join(t.TempDir(), "pod.tar")
	if err := harness.PodArchive(podImage, pod); err != nil {
		t.Fatal(err)
	}
	c := harness.NewNodeCluster(t, podImage, pod)
	t.Log(c.Kubectl("get", "nodes,pods", "-A", "-o", "wide"))
}
