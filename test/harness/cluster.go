// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/sluice-proxy/sluice/test/process"
	"github.com/sluice-proxy/sluice/test/testenv"
)

// apiServerPort is where the API server answers in its namespace.
const apiServerPort = 6443

// Cluster is a network, an API server and serving pods, for one test.
type Cluster struct {
	*Network
	Server *APIServer
	Client kubernetes.Interface

	monitor *Monitor // of N1
	t       testing.TB
	logs    string
	state   string // the proxy's directory, which a clean-up needs
	proxies int
}

// NewCluster makes a cluster with both nodes registered and a backend in every serving pod. It ends
// with the test. On failure the test's output ends with the last lines of each log.
func NewCluster(t testing.TB) *Cluster {
	t.Helper()
	c := &Cluster{t: t, logs: t.ArtifactDir(), state: filepath.Join(t.TempDir(), "sluice")}
	c.Network = networkFor(t)
	var err error
	if c.monitor, err = startMonitor(c.N1, filepath.Join(c.logs, "writes.log")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.monitor.Close(); err != nil {
			t.Error(err)
		}
	})
	c.startServer()
	for _, node := range []*Host{c.N1, c.N2} {
		if err := createNode(t.Context(), c.Client, node); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// networkFor makes a network for a test.
func networkFor(t testing.TB) *Network {
	t.Helper()
	testenv.NeedsRoot(t)
	n, err := NewNetwork()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	return n
}

func (c *Cluster) startServer() {
	c.t.Helper()
	address := netip.AddrPortFrom(c.API.V4, apiServerPort)
	server := NewAPIServer(APIServerProgram(c.t), c.API.Namespace, address, filepath.Join(c.t.TempDir(), "control-plane"), c.logs)
	c.Server = server
	c.t.Cleanup(func() { end(c.t, server.Process()) })
	if err := server.Start(); err != nil {
		c.t.Fatal(err)
	}
	c.t.Logf("API server ready after %v", server.Took().Round(time.Millisecond))
	var err error
	if c.Client, err = server.Client(); err != nil {
		c.t.Fatal(err)
	}
	c.awaitOwnService()
}

// awaitOwnService waits for the Service "kubernetes", which the API server makes for itself a
// moment after it is ready, or ten seconds later if its first attempt fails. A proxy serves it like
// any other, so it must not come while a test counts writes.
func (c *Cluster) awaitOwnService() {
	c.t.Helper()
	Eventually(c.t, "the API server has its own service", func(ctx context.Context) error {
		_, err := c.Client.CoreV1().Services(testNamespace).Get(ctx, "kubernetes", metav1.GetOptions{})
		return err
	})
}

// shownMax is how many lines of each log a failed test shows.
const shownMax = 8

// end kills what still runs at the end of the test, and shows its log when the test has failed.
func end(t testing.TB, p *process.Daemon) {
	if p == nil {
		return
	}
	if err := p.Kill(); err != nil {
		t.Error(err)
	}
	if t.Failed() {
		t.Logf("%s (go test -artifacts keeps it) ends with:\n%s", p.LogFile(), p.Tail(shownMax))
	}
}

// Commits returns what any program wrote to the kernel of node N1 since a generation.
func (c *Cluster) Commits(since uint32) []Commit {
	c.t.Helper()
	commits, err := c.monitor.Commits(since)
	if err != nil {
		c.t.Fatal(err)
	}
	return commits
}

// CreateService creates a dual-stack Service, changed by the functions, and returns it with the
// addresses it was given.
func (c *Cluster) CreateService(name string, kind corev1.ServiceType, changes ...func(*corev1.ServiceSpec)) *corev1.Service {
	c.t.Helper()
	wanted := newService(name, kind)
	for _, change := range changes {
		change(&wanted.Spec)
	}
	service, err := c.Client.CoreV1().Services(testNamespace).Create(c.t.Context(), wanted, metav1.CreateOptions{})
	if err != nil {
		c.t.Fatalf("create service %s: %v", name, err)
	}
	return service
}

// SetEndpoints makes the pods the ready endpoints of a Service, in both families.
func (c *Cluster) SetEndpoints(service string, pods ...*Host) {
	c.t.Helper()
	if err := c.setEndpoints(c.t.Context(), service, pods); err != nil {
		c.t.Fatal(err)
	}
}

func (c *Cluster) setEndpoints(ctx context.Context, service string, pods []*Host) error {
	client := c.Client.DiscoveryV1().EndpointSlices(testNamespace)
	for _, family := range families {
		slice := newSlice(service, family, pods)
		_, err := client.Create(ctx, slice, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			_, err = client.Update(ctx, slice, metav1.UpdateOptions{})
		}
		if err != nil {
			return fmt.Errorf("write endpoint slice %s: %w", slice.Name, err)
		}
	}
	return nil
}

// DeleteService deletes a Service and then its endpoint slices, as the garbage collector would.
func (c *Cluster) DeleteService(name string) {
	c.t.Helper()
	ctx := c.t.Context()
	errs := []error{c.Client.CoreV1().Services(testNamespace).Delete(ctx, name, metav1.DeleteOptions{})}
	for _, family := range families {
		errs = append(errs, c.Client.DiscoveryV1().EndpointSlices(testNamespace).Delete(ctx, sliceName(name, family), metav1.DeleteOptions{}))
	}
	if err := errors.Join(errs...); err != nil {
		c.t.Fatalf("delete service %s: %v", name, err)
	}
}

// Eventually calls f until it returns nil and returns how long that took. After a long time, the test ends with f's last
// error. So does f's context.
func Eventually(t testing.TB, what string, f func(context.Context) error) time.Duration {
	t.Helper()
	return Within(t, testenv.Patience, what, f)
}

// Within is Eventually with another limit, for what takes minutes on an idle machine.
func Within(t testing.TB, limit time.Duration, what string, f func(context.Context) error) time.Duration {
	t.Helper()
	limit = slow(limit)
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	start := time.Now()
	for {
		err := f(ctx)
		if err == nil {
			took := time.Since(start)
			t.Logf("%s after %v", what, took.Round(time.Millisecond))
			return took
		}
		select {
		case <-ctx.Done():
			t.Fatalf("not within %v: %s: %v", limit, what, err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}
