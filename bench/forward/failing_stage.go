package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/sluice-proxy/sluice/bench/rig"
	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/test/apitest"
)

// endpointsFailing is the number of endpoints of the Service, and sources that of client addresses.
const (
	endpointsFailing = 10
	sources          = 5
)

// stage is a network with a proxy, an API server on the node, and one Service.
type stage struct {
	*netns.Network
	of                 subject
	client, node, pods *netns.Namespace
	sources            []netip.Addr
	api                *apitest.Server
	proxy              *netns.Daemon
}

func endpointFailing(n int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 244, 1, byte(11 + n)}), 8080)
}

// failingAt is the endpoint that fails.
func failingAt() netip.AddrPort { return endpointFailing(3) }

// forgedRange are addresses that the client's host does not have. The node sends it their answers.
var forgedRange, fewForged = netip.MustParsePrefix("10.200.0.0/16"), netip.MustParsePrefix("10.200.0.0/26")

// newStage starts everything, and waits until the Service answers.
func newStage(ctx context.Context, s settings, of subject, dir string) (_ *stage, err error) {
	st := &stage{of: of}
	clients, pods := clientCable, netns.Cable{Router: "node", Leaf: "pods", Port: "pods", AtRouter: netns.Prefixes("10.244.1.1/24")}
	clients.AtLeaf = nil
	for n := range sources {
		st.sources = append(st.sources, netip.AddrFrom4([4]byte{192, 0, 2, byte(2 + n)}))
		clients.AtLeaf = append(clients.AtLeaf, netip.PrefixFrom(st.sources[n], 24))
	}
	plan := netns.Plan{Routes: []netns.Route{{Host: "node", To: forgedRange, Via: st.sources[0]}}}
	for n := range endpointsFailing {
		at := endpointFailing(n)
		pods.AtLeaf = append(pods.AtLeaf, netip.PrefixFrom(at.Addr(), 24))
		plan.Servers = append(plan.Servers, netns.Server{Name: at.String(), Host: "pods", At: at})
	}
	plan.Cables = []netns.Cable{clients, pods}
	if st.Network, err = netns.Build(plan); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, st.close())
		}
	}()
	st.client, st.node, st.pods = st.Hosts["client"], st.Hosts["node"], st.Hosts["pods"]
	if st.api, err = apitest.New(st.node.Listen); err != nil {
		return nil, err
	}
	st.fill()
	if st.proxy, err = st.startProxy(s, dir); err != nil {
		return nil, err
	}
	limit, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return st, rig.Await(limit, st.proxy, func() error {
		_, err := st.client.Ask(limit, "tcp", serviceAt)
		return err
	})
}

// startProxy starts the proxy with the flags that both know.
func (s *stage) startProxy(settings settings, dir string) (*netns.Daemon, error) {
	words := []string{
		"--master", "http://" + s.api.Address(), "--hostname-override", "node", "--proxy-mode", s.of.mode,
		"--conntrack-max-per-core=0", "--metrics-bind-address", "127.0.0.1:10249",
	}
	program := settings.kubeProxy
	if !s.of.kubeProxy {
		program = settings.sluice
		words = slices.Concat([]string{"proxy"}, words, []string{"--sluice-state-dir", filepath.Join(dir, "state")},
			strings.Fields(settings.words))
	}
	return netns.StartDaemon(s.node, filepath.Join(dir, "log"), exec.Command(program, words...))
}

// fill puts the node, the Service and all of its endpoints into the API server.
func (s *stage) fill() {
	s.api.Set(apitest.Nodes, &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "node", UID: "node"},
		Status:     corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.1"}}},
	})
	web := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "demo", Name: "web", UID: "web", CreationTimestamp: metav1.Now()},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, ClusterIP: serviceAt.Addr().String(), ClusterIPs: []string{serviceAt.Addr().String()},
			IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}, SessionAffinity: corev1.ServiceAffinityNone,
			IPFamilyPolicy:        new(corev1.IPFamilyPolicySingleStack),
			InternalTrafficPolicy: new(corev1.ServiceInternalTrafficPolicyCluster),
			Ports:                 []corev1.ServicePort{{Name: "web", Protocol: corev1.ProtocolTCP, Port: 80, TargetPort: intstr.FromInt32(8080)}},
		},
	}
	if s.of.passive {
		web.Annotations = map[string]string{"sluice.dev/outlier": "passive"}
	}
	s.list(endpointsFailing)
	s.api.Set(apitest.Services, web)
}

// list makes the API list the endpoints except the one of a number; endpointsFailing lists all.
func (s *stage) list(except int) {
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "demo", Name: "web", UID: "slice", Labels: map[string]string{
			discoveryv1.LabelServiceName: "web", discoveryv1.LabelManagedBy: "endpointslice-controller.k8s.io",
		}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: new("web"), Protocol: new(corev1.ProtocolTCP), Port: new(int32(8080))}},
	}
	for n := range endpointsFailing {
		if n != except {
			slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
				Addresses:  []string{endpointFailing(n).Addr().String()},
				Conditions: discoveryv1.EndpointConditions{Ready: new(true), Serving: new(true), Terminating: new(false)},
			})
		}
	}
	s.api.Set(apitest.EndpointSlices, slice)
}

// used returns the CPU time of the proxy so far.
func (s *stage) used() (time.Duration, error) {
	used, err := rig.Used(s.proxy.PID())
	return used.Sum(), err
}

// ejections returns how often the proxy has suspected an endpoint. Without the annotation it never does.
func (s *stage) ejections(ctx context.Context) (int, error) {
	if !s.of.passive {
		return 0, nil
	}
	text, err := rig.Get(ctx, s.node, "http://127.0.0.1:10249/metrics")
	if err != nil {
		return 0, err
	}
	_, rest, found := strings.Cut(string(text), "\nsluice_endpoint_ejections_total ")
	if !found {
		return 0, errors.New("the proxy does not count ejections")
	}
	value, _, _ := strings.Cut(rest, "\n")
	n, err := strconv.ParseFloat(value, 64)
	if err != nil {
		return 0, fmt.Errorf("ejections: %w", err)
	}
	return int(n), nil
}

func (s *stage) close() (err error) {
	if s.proxy != nil {
		err = s.proxy.Kill()
	}
	if s.api != nil {
		err = errors.Join(err, s.api.Stop())
	}
	return errors.Join(err, s.Network.Close())
}
