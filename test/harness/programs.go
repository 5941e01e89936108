// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/sluice-proxy/sluice/test/testenv"
)

// e2eModule is the module with the programs that need k8s.io/kubernetes.
const e2eModule = "test/e2e"

// APIServerProgram returns the program of test/e2e/apiserver. No test builds it, which takes minutes: a test without it
// is skipped.
func APIServerProgram(t testing.TB) string { return given(t, "SLUICE_E2E_APISERVER", "e2e-apiserver") }

// kubeProxyProgram returns the program of test/e2e/kubeproxy. A test without it is skipped.
func kubeProxyProgram(t testing.TB) string { return given(t, "SLUICE_E2E_KUBEPROXY", "e2e-kubeproxy") }

func given(t testing.TB, variable, name string) string {
	t.Helper()
	path := cmp.Or(os.Getenv(variable), filepath.Join(testenv.Root(), "bin", name))
	if _, err := os.Stat(path); err != nil {
		testenv.Missing(t, "needs %s, which make test-e2e builds, or %s: %v", name, variable, err)
	}
	return path
}

// compiled returns a function that builds a package once per test process, for programs that take seconds to build.
func compiled(name, dir, pkg string, flags ...string) func() (string, error) {
	return sync.OnceValues(func() (string, error) { return compile(name, dir, append([]string{"build"}, flags...), pkg) })
}

// Programs that only the tests of a few packages need.
var (
	// containerBinary confines others.
	containerBinary = compiled("e2e-container", e2eModule, "./container")
	// nodeBinary and podBinary are the node and what runs in its pods.
	nodeBinary = compiled("e2e-node", e2eModule, "./node")
	podBinary  = compiled("e2e-pod", e2eModule, "./pod")
	// KubectlBinary builds kubectl.
	KubectlBinary   = compiled("e2e-kubectl", e2eModule, kubernetesModule+"/cmd/kubectl")
	kustomizeBinary = compiled("kustomize", "hack/tools", "sigs.k8s.io/kustomize/kustomize/v5")
	helmBinary      = compiled("helm", "hack/helm", ".")
)

// compile runs a command of the go tool in a directory of the repository. It returns the program, which is in bin.
func compile(name, dir string, command []string, pkg string) (string, error) {
	out := filepath.Join(testenv.Root(), "bin", name)
	return out, goTool(dir, append(slices.Clone(command), "-o", out, pkg)...)
}

func goTool(dir string, args ...string) error {
	cmd := exec.Command("go", args...)
	cmd.Dir, cmd.Env = filepath.Join(testenv.Root(), dir), append(os.Environ(), "CGO_ENABLED=0")
	if printed, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("in %s: go %s: %w\n%s", cmd.Dir, strings.Join(args, " "), err, printed)
	}
	return nil
}
