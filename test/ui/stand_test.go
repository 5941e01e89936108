// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/sluice-proxy/sluice/test/apitest"
	"github.com/sluice-proxy/sluice/test/testenv"
)

// inside is set in the process that runs the tests.
const inside = "SLUICE_UI_INSIDE"

// TestMain runs the tests in separate namespaces, whose processes end with them.
func TestMain(m *testing.M) {
	if os.Getenv(inside) != "" {
		// All endpoints are on this host.
		for _, words := range []string{"link set lo up", "address add " + clientAddress + "/32 dev lo", "route add local 10.244.0.0/16 dev lo",
			"route add 10.96.0.0/16 dev lo src " + clientAddress} {
			if out, err := exec.Command("ip", strings.Fields(words)...).CombinedOutput(); err != nil {
				log.Fatalf("ip %s: %v: %s", words, err, out)
			}
		}
		// A node forwards packets; otherwise the finding node-settings is on the page.
		for _, setting := range []string{"ipv4/ip_forward", "ipv6/conf/all/forwarding"} {
			if err := os.WriteFile("/proc/sys/net/"+setting, []byte("1"), 0o644); err != nil {
				log.Fatal(err)
			}
		}
		os.Exit(m.Run())
	}
	words := append([]string{"--net", "--pid", "--mount", "--fork", "--mount-proc", "--kill-child"}, os.Args...)
	cmd := exec.Command("unshare", words...)
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var exit *exec.ExitError
	switch err := cmd.Run(); {
	case errors.As(err, &exit):
		os.Exit(exit.ExitCode())
	case err != nil:
		log.Fatal(err)
	}
}

const (
	nodeName = "node-1"
	address  = "127.0.0.1:10249"
	page     = "http://" + address + "/ui/"
	// heldPort is a node port that another program of the host holds on localhost.
	heldPort = 30080
	// clientAddress is that of connections to Services.
	clientAddress = "10.244.9.9"
)

// stand is a cluster, the proxy on its node, and a browser.
type stand struct {
	*testing.T
	api        *apitest.Server
	browser    context.Context
	complaints *complaints
}

func newStand(t *testing.T, services int) *stand {
	t.Helper()
	api, err := apitest.New(net.Listen)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = api.Stop() })
	s := &stand{T: t, api: api, complaints: &complaints{}}
	s.fill(services)
	s.holdPort()
	s.startProxy()
	s.startBrowser()
	return s
}

// fill makes the Node and Services, five of which tests change.
func (s *stand) fill(services int) {
	s.api.Set(apitest.Nodes, &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: nodeName, Labels: map[string]string{corev1.LabelTopologyZone: "zone-a"}},
		Status:     corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.1"}}},
	})
	s.api.Set(apitest.ServiceCIDRs, &networkingv1.ServiceCIDR{
		ObjectMeta: metav1.ObjectMeta{Name: "kubernetes"}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.96.0.0/16"}},
	})
	for n := range services {
		namespace, name := nameOf(n)
		s.service(n, namespace, name, 0)
		s.endpoints(n, namespace, name, 1+n%4)
	}
}

// words make names that look like those of a cluster.
var teams = []string{"billing", "catalog", "checkout", "identity", "payments", "search", "shipping", "web"}
var apps = []string{"api", "cache", "db", "gateway", "ledger", "queue", "store", "worker"}

func nameOf(n int) (namespace, name string) {
	return teams[n%len(teams)], fmt.Sprintf("%s-%04d", apps[n/len(teams)%len(apps)], n)
}

func (s *stand) service(n int, namespace, name string, nodePort int32) {
	made := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(fmt.Sprint(n))},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
			ClusterIP: clusterIP(n), ClusterIPs: []string{clusterIP(n)},
			Ports: []corev1.ServicePort{{Name: "web", Protocol: corev1.ProtocolTCP, Port: 80, NodePort: nodePort}},
		},
	}
	if nodePort != 0 {
		made.Spec.Type = corev1.ServiceTypeNodePort
	}
	s.api.Set(apitest.Services, made)
}

func clusterIP(n int) string { return fmt.Sprintf("10.96.%d.%d", 1+n/250, 1+n%250) }

// endpoints gives a Service as many endpoints, every second one on this node.
func (s *stand) endpoints(n int, namespace, name string, count int) {
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name + "-x", Labels: map[string]string{discoveryv1.LabelServiceName: name},
			Annotations: map[string]string{corev1.EndpointsLastChangeTriggerTime: time.Now().UTC().Format(time.RFC3339Nano)},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: ptr.To("web"), Protocol: ptr.To(corev1.ProtocolTCP), Port: ptr.To(int32(8080))}},
	}
	for e := range count {
		on := nodeName
		if e%2 == 1 {
			on = "node-2"
		}
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{fmt.Sprintf("10.244.%d.%d", n%250, 1+e)}, NodeName: ptr.To(on), Zone: ptr.To("zone-a"),
			Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true), Serving: ptr.To(true)},
		})
	}
	s.api.Set(apitest.EndpointSlices, slice)
}

// holdPort starts the program that holds a node port on localhost.
func (s *stand) holdPort() {
	s.Helper()
	cmd := exec.Command("/usr/bin/python3", "-m", "http.server", "--bind", "127.0.0.1", fmt.Sprint(heldPort))
	cmd.Dir = s.TempDir()
	if err := cmd.Start(); err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	s.answers(fmt.Sprintf("127.0.0.1:%d", heldPort))
}

// answers waits until somebody listens at an address.
func (s *stand) answers(at string) {
	s.Helper()
	testenv.Eventually(s.T, at+" answers", func() bool {
		conn, err := net.Dial("tcp", at)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
}

// program returns a program of cmd that make test-ui has built.
func (s *stand) program(name string) string {
	s.Helper()
	path := filepath.Join(os.Getenv("SLUICE_UI_PROGRAMS"), name)
	if _, err := os.Stat(path); err != nil {
		testenv.Missing(s, "needs SLUICE_UI_PROGRAMS: make test-ui (%v)", err)
	}
	return path
}

// startProxy starts the program sluice.
func (s *stand) startProxy() {
	s.Helper()
	dir := s.TempDir()
	config := filepath.Join(dir, "kubeconfig")
	if err := apitest.WriteKubeconfig(config, s.api.Address()); err != nil {
		s.Fatal(err)
	}
	binary := s.program("sluice")
	output, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		s.Fatal(err)
	}
	defer output.Close()
	cmd := exec.Command(binary, "proxy", "--kubeconfig="+config, "--hostname-override="+nodeName, "--proxy-mode=nftables",
		"--cluster-cidr=10.244.0.0/16", "--conntrack-max-per-core=0", "--sluice-state-dir="+filepath.Join(dir, "state"),
		"--metrics-bind-address="+address, "--sluice-ui", testenv.Settings(s.T, "nftables: {localhostNodePorts: true}"))
	cmd.Stdout, cmd.Stderr = output, output
	if err := cmd.Start(); err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		if text, _ := os.ReadFile(output.Name()); s.Failed() {
			s.Logf("the proxy said:\n%s", text[max(0, len(text)-4000):])
		}
	})
	s.answers(address)
}

func (s *stand) startBrowser() {
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox, chromedp.ExecPath("/usr/bin/chromium"),
		chromedp.WindowSize(1280, 800), chromedp.Flag("disable-dev-shm-usage", true), chromedp.UserDataDir(s.TempDir()),
		chromedp.WSURLReadTimeout(2*time.Minute))
	allocated, end := chromedp.NewExecAllocator(context.Background(), options...)
	s.Cleanup(end)
	browser, end := chromedp.NewContext(allocated)
	s.Cleanup(end)
	s.browser = browser
}
