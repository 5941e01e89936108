package harness

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
)

// Environment variables that replace what the harness would build.
const (
	// envSluice names a sluice binary to test.
	envSluice = "SLUICE_BINARY"
	// envAPIServer names a binary built from test/e2e/apiserver.
	envAPIServer = "SLUICE_E2E_APISERVER"
	// envKubeProxy names a binary built from test/e2e/kubeproxy.
	envKubeProxy = "SLUICE_E2E_KUBEPROXY"
	// envRace, when not empty, builds sluice with the race detector. A race in its log fails the test.
	envRace = "SLUICE_E2E_RACE"
)

// apiServerBinary builds the API server once per test process. The Go build cache makes it cheap after
// the first time on a machine, which takes minutes.
var apiServerBinary = sync.OnceValues(func() (string, error) {
	return build(envAPIServer, "e2e-apiserver", "test/e2e", "./apiserver")
})

// kubeProxyBinary builds kube-proxy once per test process; most of it is in the API server, too.
var kubeProxyBinary = sync.OnceValues(func() (string, error) {
	return build(envKubeProxy, "e2e-kubeproxy", "test/e2e", "./kubeproxy")
})

// sluiceBinary builds Sluice once per test process.
var sluiceBinary = sync.OnceValues(func() (string, error) {
	if os.Getenv(envRace) != "" {
		return build(envSluice, "e2e-sluice-race", ".", "./cmd/sluice", "-race")
	}
	return build(envSluice, "e2e-sluice", ".", "./cmd/sluice")
})

// build returns the program named by the environment, or else builds the package in a folder of the
// repository into bin/ at its top, which is not under version control.
func build(env, name, dir, pkg string, flags ...string) (string, error) {
	if path := os.Getenv(env); path != "" {
		if _, err := os.Stat(path); err != nil {
			return "", fmt.Errorf("environment variable %s: %w", env, err)
		}
		return filepath.Abs(path)
	}
	top, err := repository()
	if err != nil {
		return "", err
	}
	out := filepath.Join(top, "bin", name)
	args := append(append([]string{"build", "-o", out}, flags...), pkg)
	cmd := exec.Command("go", args...)
	cmd.Dir = filepath.Join(top, dir)
	if printed, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("in %s: go %s: %w\n%s", cmd.Dir, strings.Join(args, " "), err, printed)
	}
	return out, nil
}

// repository returns the folder at the top of the checkout, which the go tool knows from the module
// file of the test that runs.
func repository() (string, error) {
	printed, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("find the repository: go env GOMOD: %w; the go tool must be in PATH to build what is tested", err)
	}
	module := strings.TrimSpace(string(printed))
	top, found := strings.CutSuffix(module, filepath.Join("/test", "e2e", "go.mod"))
	if !found {
		return "", fmt.Errorf("find the repository: go env GOMOD says %q, want .../test/e2e/go.mod; run the tests in that module", module)
	}
	return top, nil
}
