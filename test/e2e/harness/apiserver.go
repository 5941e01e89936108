package harness

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/sluice-proxy/sluice/internal/host/netns"
)

// apiServerStartMax bounds a start of the API server; three seconds are usual on an idle machine.
const apiServerStartMax = 2 * time.Minute

// APIServer is a control plane in a namespace. Its state and its address survive Stop and Start.
type APIServer struct {
	binary    string
	dir       string // database and credentials
	logs      string // directory for one log file per start
	namespace *netns.Namespace
	address   netip.AddrPort
	nodes     []string // with kubelets that run pods

	starts  int           // how often it was started
	took    time.Duration // how long the last start took
	process *netns.Daemon // nil before the first start
}

// NewAPIServer prepares a server that keeps its state in dir and its logs in the directory logs. The
// address must be one of the namespace's.
func NewAPIServer(n *netns.Namespace, address netip.AddrPort, dir, logs string) (*APIServer, error) {
	binary, err := apiServerBinary()
	if err != nil {
		return nil, err
	}
	return &APIServer{binary: binary, dir: dir, logs: logs, namespace: n, address: address}, nil
}

// Start starts the server and returns when it is ready.
func (s *APIServer) Start() error {
	s.starts++
	begin := time.Now()
	log := filepath.Join(s.logs, fmt.Sprintf("apiserver-%d.log", s.starts))
	process, err := netns.StartDaemon(s.namespace, log, exec.Command(s.binary,
		"--data-dir", s.dir,
		"--bind-address", s.address.Addr().String(),
		"--secure-port", strconv.Itoa(int(s.address.Port())),
		"--node", strings.Join(s.nodes, ","),
	))
	if err != nil {
		return err
	}
	s.process = process
	if err := s.awaitReady(); err != nil {
		return errors.Join(fmt.Errorf("API server at %s: %w\n%s", s.address, err, process.Tail(20)), process.Kill())
	}
	s.took = time.Since(begin)
	return lend(s.ProxyKubeconfig()) // which is new
}

// Address returns where clients reach the server.
func (s *APIServer) Address() netip.AddrPort { return s.address }

// Took returns how long the last start took.
func (s *APIServer) Took() time.Duration { return s.took }

// awaitReady waits for the line that test/e2e/apiserver promises.
func (s *APIServer) awaitReady() error {
	ctx, cancel := context.WithTimeout(context.Background(), slow(apiServerStartMax))
	defer cancel()
	return s.process.AwaitLine(ctx, "ready https://")
}

// Stop ends the server in an orderly way: it closes every connection and leaves.
func (s *APIServer) Stop() error { return s.process.Stop() }

// Kill ends the server immediately.
func (s *APIServer) Kill() error { return s.process.Kill() }

// Process returns the running or last process, nil before the first start.
func (s *APIServer) Process() *netns.Daemon { return s.process }

// ProxyKubeconfig names a file for a client with the rights of kube-proxy and no others.
func (s *APIServer) ProxyKubeconfig() string { return s.credential("proxy.kubeconfig") }

// credential names one of the files that package credentials makes.
func (s *APIServer) credential(name string) string {
	return filepath.Join(s.dir, "credentials", name)
}

// Client returns a client that may do everything and that reaches the server from inside its own
// namespace, independent of anything the proxy under test does.
func (s *APIServer) Client() (kubernetes.Interface, error) {
	config, err := s.config()
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("client of the API server: %w", err)
	}
	return client, nil
}

func (s *APIServer) config() (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", s.credential("admin.kubeconfig"))
	if err != nil {
		return nil, fmt.Errorf("client of the API server: %w", err)
	}
	config.Dial = s.namespace.DialContext
	config.QPS, config.Burst = -1, 0 // a test waits for the server, not for its own client
	config.Timeout = 30 * time.Second
	config.WarningHandler = rest.NoWarnings{}
	return config, nil
}

// AdminKubeconfig names a file for a client that may do everything.
func (s *APIServer) AdminKubeconfig() string { return s.credential("admin.kubeconfig") }

// Environment variables that replace what the harness would build.
const (
	// envSluice names a sluice binary to test.
	envSluice = "SLUICE_BINARY"
	// envAPIServer names a binary built from test/e2e/apiserver.
	envAPIServer = "SLUICE_E2E_APISERVER"
	// envKubeProxy names a binary built from test/e2e/kubeproxy.
	envKubeProxy = "SLUICE_E2E_KUBEPROXY"
	// envRace, when not empty, builds sluice with the race detector. A race in its log fails the
	// test.
	envRace = "SLUICE_E2E_RACE"
)

// apiServerBinary builds the API server once per test process. The Go build cache makes it cheap
// after the first time on a machine, which takes minutes.
var apiServerBinary = sync.OnceValues(func() (string, error) {
	return build(envAPIServer, "e2e-apiserver", "test/e2e", "./apiserver")
})

// kubeProxyBinary builds kube-proxy once per test process; most of it is in the API server, too.
var kubeProxyBinary = sync.OnceValues(func() (string, error) {
	flags, err := versionFlags()
	if err != nil {
		return "", err
	}
	return build(envKubeProxy, "e2e-kubeproxy", "test/e2e", "./kubeproxy", flags...)
})

// KubectlBinary builds kubectl once per test process.
var KubectlBinary = sync.OnceValues(func() (string, error) {
	return build("", "e2e-kubectl", "test/e2e", "k8s.io/kubernetes/cmd/kubectl")
})

// sluiceBinary builds Sluice once per test process.
var sluiceBinary = sync.OnceValues(func() (string, error) {
	if os.Getenv(envRace) != "" {
		return build(envSluice, "e2e-sluice-race", ".", "./cmd/sluice", "-race")
	}
	return build(envSluice, "e2e-sluice", ".", "./cmd/sluice")
})

// SluiceBinary builds Sluice once per test process.
func SluiceBinary() (string, error) { return sluiceBinary() }

// build returns the program named by the environment, or else builds the package in a directory of the
// repository into bin/ at its top, which is not under version control.
func build(env, name, dir, pkg string, flags ...string) (string, error) {
	if path := os.Getenv(env); path != "" {
		if _, err := os.Stat(path); err != nil {
			return "", fmt.Errorf("environment variable %s: %w", env, err)
		}
		return filepath.Abs(path)
	}
	return compile(name, dir, append([]string{"build"}, flags...), pkg)
}

// compile runs a command of the go tool in a directory of the repository, and returns what it wrote.
func compile(name, dir string, command []string, pkg string) (string, error) {
	top, err := repository()
	if err != nil {
		return "", err
	}
	out := filepath.Join(top, "bin", name)
	args := append(slices.Clone(command), "-o", out, pkg)
	cmd := exec.Command("go", args...)
	cmd.Dir = filepath.Join(top, dir)
	if printed, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("in %s: go %s: %w\n%s", cmd.Dir, strings.Join(args, " "), err, printed)
	}
	return out, nil
}

// repository returns the directory at the top of the checkout, which the go tool knows from the module
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
