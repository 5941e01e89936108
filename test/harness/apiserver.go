// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/test/process"
	"github.com/sluice-proxy/sluice/test/testenv"
)

// APIServer is a control plane in a namespace. Its state and its address survive Stop and Start.
type APIServer struct {
	binary    string
	dir       string // database and credentials
	logs      string // directory for one log file per start
	namespace *netns.Namespace
	address   netip.AddrPort
	nodes     []string // with kubelets that run pods

	starts  int             // how often it was started
	took    time.Duration   // how long the last start took
	process *process.Daemon // nil before the first start
}

// NewAPIServer prepares a server, the program binary, that keeps its state in dir and its logs in the directory logs.
// The address must be one of the namespace's.
func NewAPIServer(binary string, n *netns.Namespace, address netip.AddrPort, dir, logs string) *APIServer {
	return &APIServer{binary: binary, dir: dir, logs: logs, namespace: n, address: address}
}

// Start starts the server and returns when it is ready.
func (s *APIServer) Start() error {
	s.starts++
	begin := time.Now()
	log := filepath.Join(s.logs, fmt.Sprintf("apiserver-%d.log", s.starts))
	process, err := process.StartDaemon(s.namespace, log, exec.Command(s.binary,
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
	ctx, cancel := context.WithTimeout(context.Background(), slow(testenv.Patience))
	defer cancel()
	return s.process.AwaitLine(ctx, "ready https://")
}

// Stop ends the server in an orderly way: it closes every connection and leaves.
func (s *APIServer) Stop() error { return s.process.Stop() }

// Kill ends the server immediately.
func (s *APIServer) Kill() error { return s.process.Kill() }

// Process returns the running or last process, nil before the first start.
func (s *APIServer) Process() *process.Daemon { return s.process }

// ProxyKubeconfig names a file for a client with the rights of kube-proxy and no others.
func (s *APIServer) ProxyKubeconfig() string { return s.credential("proxy.kubeconfig") }

// credential names one of the files that package credentials makes.
func (s *APIServer) credential(name string) string {
	return filepath.Join(s.dir, "credentials", name)
}

// Client returns a client that may do everything and that reaches the server from inside its own
// namespace, independent of anything the proxy under test does.
func (s *APIServer) Client() (kubernetes.Interface, error) {
	config, err := s.Config()
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("client of the API server: %w", err)
	}
	return client, nil
}

// Config returns what such a client is made from.
func (s *APIServer) Config() (*rest.Config, error) {
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
