// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/test/apitest"
	"github.com/sluice-proxy/sluice/test/doctest"
	"github.com/sluice-proxy/sluice/test/netnstest"
)

// nodeBench returns a node of a cluster that has the objects of both examples. The proxy runs
// there as in its DaemonSet, with its usual socket and addresses.
func nodeBench(t *testing.T) doctest.Bench {
	t.Helper()
	bench, namespace := pageBench(t)
	// The directories of the host that the pages name are private to the node.
	holder := exec.Command("unshare", "--mount", "bash", "-ec",
		"mount -t tmpfs tmpfs /run; mount -t tmpfs tmpfs /var/lib; mkdir /var/lib/kube-proxy; echo ready; exec cat")
	ready, err := holder.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	hold(t, namespace, holder)
	// Before, its process is in the mount namespace of the host.
	if line, err := bufio.NewReader(ready).ReadString('\n'); line != "ready\n" {
		t.Fatalf("cannot make a mount namespace: %q, %v", line, err)
	}
	bench.Prefix = []string{"nsenter", "--target", strconv.Itoa(holder.Process.Pid), "--mount", "--wd=" + bench.Dir}
	server, whole := startAPI(t, namespace), shopSlice(t)
	half := whole.DeepCopy()
	half.Endpoints = half.Endpoints[:1]
	server.Set(apitest.EndpointSlices, half)
	kubeconfig := filepath.Join(bench.Dir, "kubeconfig.conf")
	writeFile(t, kubeconfig, kubeconfigFor(server))
	writeFile(t, filepath.Join(bench.Dir, "config.conf"), `apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
clientConnection:
  kubeconfig: /var/lib/kube-proxy/kubeconfig.conf
hostnameOverride: demo
clusterCIDR: 10.244.0.0/16,fd00:10:244::/56
enableProfiling: true
conntrack: # not of this test's host
  maxPerCore: 0
  min: 0
  tcpEstablishedTimeout: 0s
  tcpCloseWaitTimeout: 0s
---
apiVersion: sluice.dev/v1alpha1
kind: SluiceConfiguration
ui:
  enabled: true
`)
	n := &node{Bench: bench, T: t, namespace: namespace, log: filepath.Join(bench.Dir, "proxy.log")}
	if output, err := netnstest.Output(namespace, n.command("mv", "config.conf", "kubeconfig.conf", "/var/lib/kube-proxy")); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	proxy := n.command("sluice", "proxy", "--config=/var/lib/kube-proxy/config.conf", "--hostname-override=demo")
	proxy.Stderr = create(t, n.log)
	hold(t, namespace, proxy)
	n.await(`sluice status 2>&1 | grep -q '^Health: healthy' && [ "$(sluice get services | grep -c 'applied')" = 4 ]`)
	server.Set(apitest.EndpointSlices, whole) // a change, for the timeline
	n.await(`sluice describe service web/shop | grep -q ' endpoints .* 4$'`)
	return bench
}

// node is a node with a proxy, while it is being prepared.
type node struct {
	doctest.Bench
	*testing.T
	namespace *netns.Namespace
	log       string
}

// command returns a program that is to run on the node.
func (n *node) command(words ...string) *exec.Cmd {
	words = append(slices.Clone(n.Prefix), words...)
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Dir, cmd.Env = n.Dir, append(os.Environ(), n.Env...)
	return cmd
}

// await waits until a command succeeds.
func (n *node) await(text string) {
	n.Helper()
	cmd := n.command("bash", "-c", "until "+text+"; do sleep .05; done")
	timer := time.AfterFunc(waitMax, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	if output, err := netnstest.Output(n.namespace, cmd); err != nil {
		log, _ := os.ReadFile(n.log) // which need not exist yet
		n.Fatalf("waiting for %s: %v\n%s\n%s", text, err, output, log)
	}
}

// hold starts a program that runs until the end of the test.
func hold(t *testing.T, namespace *netns.Namespace, cmd *exec.Cmd) {
	t.Helper()
	if _, err := cmd.StdinPipe(); err != nil { // which the end of the test's process closes
		t.Fatal(err)
	}
	if err := netnstest.Start(namespace, cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
}

// startAPI starts an API server in a namespace, with the objects of the examples.
func startAPI(t *testing.T, namespace *netns.Namespace) *apitest.Server {
	t.Helper()
	server, err := apitest.New(func(network, address string) (net.Listener, error) { return namespace.Listen(network, address) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	for _, object := range exampleObjects(t) {
		switch object.(type) {
		case *corev1.Service:
			server.Set(apitest.Services, object)
		case *discoveryv1.EndpointSlice:
			server.Set(apitest.EndpointSlices, object)
		case *corev1.Node:
			server.Set(apitest.Nodes, object)
		case *networkingv1.ServiceCIDR:
			server.Set(apitest.ServiceCIDRs, object)
		default:
			t.Fatalf("%T", object)
		}
	}
	return server
}

// shopSlice returns the EndpointSlice of the Service web/shop.
func shopSlice(t *testing.T) *discoveryv1.EndpointSlice {
	t.Helper()
	for _, object := range exampleObjects(t) {
		if slice, ok := object.(*discoveryv1.EndpointSlice); ok && slice.Name == "shop-1" {
			return slice
		}
	}
	t.Fatal("no EndpointSlice shop-1 in the examples")
	return nil
}

// exampleObjects returns the objects of the examples.
func exampleObjects(t *testing.T) (objects []runtime.Object) {
	t.Helper()
	demo, _ := filepath.Glob(filepath.Join("..", "..", "examples", "demo", "*"))
	web, _ := filepath.Glob(filepath.Join("..", "..", "examples", "web", "*"))
	for _, file := range append(demo, web...) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for part := range strings.SplitSeq(string(text), "\n---\n") {
			objects = append(objects, decoded(t, file, []byte(part))...)
		}
	}
	return objects
}

// decoded returns an object, or those of a list.
func decoded(t *testing.T, file string, text []byte) (objects []runtime.Object) {
	t.Helper()
	object, _, err := scheme.Codecs.UniversalDeserializer().Decode(text, nil, nil)
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	list, isList := object.(*corev1.List)
	if !isList {
		return []runtime.Object{object}
	}
	for _, item := range list.Items {
		objects = append(objects, decoded(t, file, item.Raw)...)
	}
	return objects
}

func kubeconfigFor(server *apitest.Server) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: k, user: u}}]
clusters: [{name: k, cluster: {server: "http://%s"}}]
users: [{name: u}]
`, server.Address())
}

func create(t *testing.T, path string) *os.File {
	t.Helper()
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	return file
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestDocs_PathsAreServed requests each path that metrics.md and inspect.md list, from the metrics address and the
// socket.
func TestDocs_PathsAreServed(t *testing.T) {
	var commands strings.Builder
	row, values := regexp.MustCompile("(?m)^\\| (`/[^|]*`) \\|"), strings.NewReplacer("NAMESPACE", "web", "NAME", "shop", "=N", "=1")
	for page, at := range map[string]string{
		"docs/metrics.md": "http://127.0.0.1:10249",
		"docs/inspect.md": "--unix-socket /run/sluice/sluice.sock http://sluice",
	} {
		rows := row.FindAllStringSubmatch(readPage(t, page), -1)
		if len(rows) < 5 {
			t.Errorf("%s: %d rows with paths", page, len(rows))
		}
		for _, cell := range rows {
			for path := range strings.SplitSeq(cell[1], ", ") {
				if path = strings.Trim(path, "`"); path != "/debug/flags/v" { // which is for PUT
					fmt.Fprintf(&commands, "curl -fsS -o answer %s'%s'\n", at, values.Replace(path))
				}
			}
		}
	}
	list := filepath.Join(t.TempDir(), "paths.md")
	writeFile(t, list, "```sh\n"+commands.String()+"```\n")
	doctest.Run(t, list, nodeBench(t))
}
