// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-proxy/sluice/internal/inspect"
	"github.com/sluice-proxy/sluice/observe/state"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source/reduce"
	"github.com/sluice-proxy/sluice/test/apitest"
)

// fleetSize is the number of nodes.
const fleetSize = 200

// fleetNode answers for a proxy. Two nodes have a quarantined Service, one is unhealthy, and three have another
// configuration.
type fleetNode struct {
	inspect.Source
	number int
	known  service.Snapshot
}

func (n *fleetNode) Ready(context.Context) error { return nil }

func (n *fleetNode) held() *state.Quarantine {
	if n.number != 17 && n.number != 42 {
		return nil
	}
	return &state.Quarantine{Namespace: "shop", Name: "web", Reason: "the kernel rejects the rules: no space left on device", Since: time.Now().Add(-3 * time.Minute)}
}

func (n *fleetNode) Status() inspect.Status {
	time.Sleep(5 * time.Millisecond) // the way to a node and back
	s := inspect.Status{Node: fleetName(n.number), Mode: "nftables", Version: "v0.1.0", Healthy: n.number != 99, Services: 412, Now: time.Now(),
		Started: time.Now().Add(-26 * time.Hour), ConfigurationHash: "5b1f0c9d8e7a", Domains: []inspect.Domain{{Name: "nftables/IPv4", Applied: 412}}}
	s.Activity.Lag.P99Micros = int64(9000 + n.number*31%4000)
	if n.number%80 == 7 {
		s.Version, s.ConfigurationHash = "v0.1.1", "c0ffee123456"
	}
	if q := n.held(); q != nil {
		s.Domains[0].Held, s.Domains[0].Quarantined = 1, []state.Quarantine{*q}
		s.Findings = []inspect.Finding{{Finding: state.Finding{Kind: "quarantined", About: "nftables/IPv4", Problem: "1 Service is quarantined", Advice: "fix the cause that sluice describe shows", Since: q.Since}}}
	}
	if n.number == 99 {
		s.Findings = []inspect.Finding{{Finding: state.Finding{Kind: "api-stale", Unhealthy: true, Problem: "<b>no message</b> from the API server", Advice: "check the API server", Since: time.Now().Add(-time.Minute)}}}
	}
	return s
}

func (n *fleetNode) Service(_ context.Context, key service.Key) *inspect.ServiceDetail {
	if key != n.known.Spec.Key {
		return nil
	}
	d := &inspect.ServiceDetail{Now: time.Now(), Digest: inspect.Digest(n.known), Domains: []inspect.ServiceDomain{{Name: "nftables/IPv4", State: state.Applied}}}
	d.Namespace, d.Name, d.State, d.Endpoints = key.Namespace, key.Name, state.Applied, 2
	if q := n.held(); q != nil {
		d.State, d.Domains[0].State, d.Domains[0].Quarantine = state.Rejected, state.Rejected, q
	}
	if n.number == 120 {
		d.Digest, d.LastChange = "another", d.Now.Add(-20*time.Second)
	}
	return d
}

func fleetName(n int) string { return fmt.Sprintf("worker-%03d", n) }

// newFleet makes an API server with the nodes, and runs kubectl sluice ui. It returns the address of the page.
func newFleet(t *testing.T) (s *stand, address string) {
	t.Helper()
	api, err := apitest.New(net.Listen)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = api.Stop() })
	web := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Spec: corev1.ServiceSpec{
		Type: corev1.ServiceTypeClusterIP, ClusterIP: "10.96.0.7", ClusterIPs: []string{"10.96.0.7"}, Ports: []corev1.ServicePort{{Protocol: corev1.ProtocolTCP, Port: 80}}}}
	slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-1", Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
		AddressType: discoveryv1.AddressTypeIPv4}
	api.Set(apitest.Services, web)
	api.Set(apitest.EndpointSlices, slice)
	var known service.Snapshot
	known.Spec, _ = (reduce.Policy{}).Service(web)
	reduced, _ := (reduce.Policy{}).EndpointSlice(slice)
	known.Slices = []*service.Slice{reduced}
	handlers := map[string]http.Handler{}
	for n := range fleetSize {
		name := fleetName(n)
		api.Set(apitest.Nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelOSStable: "linux"}}})
		api.Set(apitest.Pods, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "sluice-" + name, Labels: map[string]string{"app.kubernetes.io/name": "sluice"}},
			Spec: corev1.PodSpec{NodeName: name}, Status: corev1.PodStatus{Phase: corev1.PodRunning}})
		if n != 150 { // it does not answer
			handlers["sluice-"+name+":10253"] = inspect.Remote("v0.1.0", &fleetNode{number: n, known: known}, true)
		}
	}
	api.Proxy(func(_, pod string) http.Handler { return handlers[pod] })
	s = &stand{T: t, api: api, complaints: &complaints{}}
	return s, s.startPage()
}

// startPage runs the command and returns the address that it prints.
func (s *stand) startPage() string {
	s.Helper()
	config := filepath.Join(s.TempDir(), "kubeconfig")
	if err := apitest.WriteKubeconfig(config, s.api.Address()); err != nil {
		s.Fatal(err)
	}
	cmd := exec.Command(s.program("kubectl-sluice"), "ui", "--no-browser", "--kubeconfig", config)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGINT)
		if err := cmd.Wait(); err != nil {
			s.Errorf("kubectl sluice ui after an interrupt: %v", err)
		}
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	_, address, found := strings.Cut(strings.TrimSpace(line), " at ")
	if err != nil || !found {
		s.Fatalf("%v: %q", err, line)
	}
	return address
}

// TestFleetPage opens the page of 200 nodes, and does what an operator does.
func TestFleetPage(t *testing.T) {
	s, address := newFleet(t)
	s.startBrowser()
	s.listen()
	s.resize(1280, 800)
	s.do(chromedp.Navigate(address))
	tile := func(id string) string { return text("#" + id + " b") }
	s.holds("all nodes are asked", tile("answered")+" === '199' && "+text("#answered")+".includes('of 200 nodes')")
	s.holds("counts", text("#counts")+".includes('v0.1.0 (196), v0.1.1 (3)') && "+text("#counts")+".includes('5b1f0c9d8e7a (196)') && "+tile("differing")+" === '3'")
	s.holds("the answer is partial", text("#health")+" === 'partial answer' && "+text("#silent")+".includes('worker-150')")
	s.holds("problems come first", "[...document.querySelectorAll('#table tbody tr')].slice(0, 3).map((r) => r.cells[0].innerText).join() === 'worker-099,worker-017,worker-042'")
	s.picture("fleet")
	s.holds("problems only", "(document.querySelector('#only').click(), true)")
	s.holds("three are left", text("#matches")+" === '3 of 199'")
	s.holds("all again", "(document.querySelector('#only').click(), document.querySelector('#search').focus(), true)")
	s.do(chromedp.KeyEvent("v0.1.1"))
	s.holds("the filter", text("#matches")+" === '3 of 199' && "+text("#table")+".includes('worker-087')")

	s.click("[data-view=problems]")
	s.holds("quarantine by Service", text("#quarantine")+".includes('shop/web') && "+text("#quarantine")+".includes('on 2 nodes: worker-017 worker-042') && "+text("#quarantine")+".includes('no space left')")
	s.holds("findings with their advice", text("#findings [data-node=worker-099]")+".includes('check the API server')")
	s.holds("texts are no markup", text("#findings")+".includes('<b>no message</b>') && "+text("#problems")+".includes('This is a partial answer')")
	s.click("#quarantine a[href='#/service/shop/web']")
	s.holds("the Service across nodes", text("#answer")+".includes('shop/web is applied on 196 of 200 nodes')")
	s.holds("with the reasons", "['worker-017', 'held (rejected)', 'no space left', 'worker-120', 'behind', 'worker-150', 'kubectl sluice where svc/web -n shop'].every((w) => "+text("#answer")+".includes(w))")
	s.holds("a Service that does not exist", "(document.querySelector('#ask').elements.service.value = 'shop/none', document.querySelector('#ask button').click(), true)")
	s.holds("is an error", text("#answer")+".includes('no Service none in namespace shop')")
	s.holds("a wrong name", "(document.querySelector('#ask').elements.service.value = 'web', document.querySelector('#ask button').click(), true)")
	s.holds("says what is wanted", text("#answer")+".includes('must be NAMESPACE/NAME')")
	s.holds("a node", "(location.hash = '#/node/worker-042', true)")
	s.holds("with commands", text("#detail")+".includes('kubectl sluice observe --node worker-042') && "+text("#detail")+".includes('exec sluice-worker-042 -- sluice status') && "+text("#detail")+".includes('shop/web is held')")
	s.click("#close")
	s.holds("closed", "document.querySelector('#detail').hidden && !document.querySelector('#nodes').hidden")

	s.holds("a new round", "(window.roundBefore = document.querySelector('#fresh').innerText, document.querySelector('#now').click(), true)")
	s.holds("it ends", text("#fresh")+" === 'asked 0 s ago'")
	s.holds("dark", "(document.querySelector('#theme').click(), document.querySelector('#theme').click(), getComputedStyle(document.body).backgroundColor === 'rgb(20, 23, 26)')")
	s.resize(375, 800)
	for _, view := range []string{"nodes", "problems", "service", "/node/worker-042"} {
		s.holds(view, fmt.Sprintf("(location.hash = '#%s', true)", view))
		s.holds(view+" is as wide as the screen", "document.documentElement.scrollWidth <= 375 && [...document.querySelectorAll('main > :not([hidden])')].every((e) => e.scrollWidth <= e.clientWidth + 1)")
	}
	for _, c := range s.complaints.take() {
		if !strings.Contains(c, "502") { // the Service that does not exist
			t.Errorf("the browser complains: %s", c)
		}
	}
}
