// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source"
	"github.com/sluice-proxy/sluice/test/apitest"
	"github.com/sluice-proxy/sluice/test/sourcetest"
	"github.com/sluice-proxy/sluice/test/testenv"
)

// rig is a source at work against an API server of the test.
type rig struct {
	*apitest.Server
	posts  *sourcetest.Recorder
	cache  *source.Cache
	source *Source
	logs   *observer.ObservedLogs
	client *rest.Config
}

func newServer(t *testing.T, listen apitest.Listen) *apitest.Server {
	t.Helper()
	server, err := apitest.New(listen)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Stop() }) // it may be stopped already
	return server
}

// clientConfig reaches a server the way RESTConfig would set it up.
func clientConfig(s *apitest.Server) *rest.Config {
	return &rest.Config{
		Host: "http://" + s.Address(), QPS: -1,
		ContentConfig: rest.ContentConfig{ContentType: Protobuf, AcceptContentTypes: Protobuf + ",application/json"},
	}
}

// newRig prepares a source; run starts it.
func newRig(t *testing.T) *rig {
	server := newServer(t, net.Listen)
	return rigOf(t, server, clientConfig(server))
}

// newSecureRig is newRig over TLS and HTTP/2, as in every cluster.
func newSecureRig(t *testing.T) *rig { return newSecureRigAt(t, net.Listen, nil) }

// newSecureRigAt is newSecureRig with a listener and a dialer, for example those of a network namespace.
func newSecureRigAt(t *testing.T, listen apitest.Listen, dial func(context.Context, string, string) (net.Conn, error)) *rig {
	lender := httptest.NewTLSServer(nil)
	certificates := lender.TLS.Certificates
	lender.Close()
	server := newServer(t, func(network, address string) (net.Listener, error) {
		listener, err := listen(network, address)
		if err != nil {
			return nil, err
		}
		return tls.NewListener(listener, &tls.Config{Certificates: certificates, NextProtos: []string{"h2"}}), nil
	})
	config := clientConfig(server)
	config.Host, config.Dial = "https://"+server.Address(), dial
	config.TLSClientConfig = rest.TLSClientConfig{Insecure: true}
	return rigOf(t, server, config)
}

// quickLimits let an outage be noticed soon.
var quickLimits = limits{
	pingAfter: 300 * time.Millisecond, pingTimeout: 300 * time.Millisecond, dial: 200 * time.Millisecond, handshake: time.Second,
}

func rigOf(t *testing.T, server *apitest.Server, client *rest.Config) *rig {
	posts := sourcetest.NewRecorder()
	cache := source.NewCache(posts, source.Options{})
	core, logs := observer.New(zap.DebugLevel)
	made, err := newForREST(Config{NodeName: "n"}, client, cache, zap.New(core), quickLimits)
	if err != nil {
		t.Fatal(err)
	}
	made.absentRetry = 20 * time.Millisecond
	made.backoff = &wait.Backoff{Duration: 5 * time.Millisecond, Cap: 50 * time.Millisecond, Steps: 4, Factor: 2}
	made.overload = *made.backoff
	return &rig{server, posts, cache, made, logs, client}
}

// run starts the source, and at the end of the test checks that it stops.
func (r *rig) run(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.source.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("Run returned %v, want nil", err)
			}
		case <-time.After(testenv.Patience):
			t.Error("Run did not end with its context")
		}
	})
}

// populate returns the server two Services with a slice each, a Node and a range.
func (r *rig) populate() {
	for _, name := range []string{"a", "b"} {
		r.Set(services, apiService(name, 80))
		r.Set(endpointSlices, apiSlice(name, name+"-1", "10.0.0.1"))
	}
	r.Set(nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}})
	r.Set(serviceCIDRs, apiRange("kubernetes", "10.96.0.0/16"))
}

// populated starts a source on a populated server and waits until everything
// has arrived.
func populated(t *testing.T) *rig {
	r := newRig(t)
	r.populate()
	r.run(t)
	r.complete(t)
	return r
}

func (r *rig) complete(t *testing.T) {
	testenv.Eventually(t, "everything has arrived", func() bool {
		stats := r.cache.Stats()
		return stats.Primed && stats.Specs == 2 && stats.Slices == 2 && r.cache.Node() != nil && len(r.cache.ServiceCIDRs()) == 1
	})
	r.posts.Take()
}

// apiService returns a Service with the ClusterIP 10.96.0.97 if its name is a.
func apiService(name string, port int32) *corev1.Service {
	address := fmt.Sprintf("10.96.0.%d", name[0])
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, ClusterIP: address, ClusterIPs: []string{address},
			IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
			Ports:      []corev1.ServicePort{{Protocol: corev1.ProtocolTCP, Port: port}},
		},
	}
}

func apiSlice(owner, name string, addresses ...string) *discoveryv1.EndpointSlice {
	portName, protocol, port := "", corev1.ProtocolTCP, int32(8080)
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: owner},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: &portName, Protocol: &protocol, Port: &port}},
		Endpoints:   []discoveryv1.Endpoint{{Addresses: addresses}},
	}
}

func apiRange(name, prefix string) *networkingv1.ServiceCIDR {
	return &networkingv1.ServiceCIDR{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{prefix}},
	}
}

// TestSource_PrimesAfterBothLists: the source primes the cache only after Services and EndpointSlices were both listed.
func TestSource_PrimesAfterBothLists(t *testing.T) {
	r := newRig(t)
	r.populate()
	r.Reject(endpointSlices, apierrors.NewInternalError(context.DeadlineExceeded))
	r.run(t)

	r.posts.Await(t, "spec ns/b")
	testenv.Eventually(t, "slices have been asked for twice", func() bool { return len(r.Asked(endpointSlices)) > 2 })
	if r.cache.Stats().Primed {
		t.Fatal("primed without the list of EndpointSlices")
	}
	r.Reject(endpointSlices, nil)
	lines := r.posts.Await(t, "primed ns/a ns/b")
	if got := r.cache.Snapshot(keyOf("a")); len(got.Slices) != 1 {
		t.Errorf("primed with %d slices of ns/a, want 1; posts: %v", len(got.Slices), lines)
	}
}

// TestSource_Follows checks that the source posts changes of all resources, with streamed lists and with plain ones, as
// servers before 1.32 offer them.
func TestSource_Follows(t *testing.T) {
	for name, plain := range map[string]bool{"streamed": false, "plain": true} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.StreamLists(!plain)
			r.populate()
			r.run(t)
			r.complete(t)

			r.Set(services, apiService("a", 81))
			r.posts.Await(t, "spec ns/a")
			r.Set(endpointSlices, apiSlice("b", "a-1", "10.0.0.1"))
			moved := r.posts.Await(t, "slice ns/b a-1")
			if want := []string{"slice ns/a a-1 gone", "slice ns/b a-1"}; !slices.Equal(moved, want) {
				t.Errorf("relabelled slice posted as %v, want %v", moved, want)
			}
			r.Remove(endpointSlices, "ns", "a-1")
			r.posts.Await(t, "slice ns/b a-1 gone")
			r.Remove(services, "ns", "b")
			r.posts.Await(t, "spec ns/b gone")
			r.Set(serviceCIDRs, apiRange("more", "10.97.0.0/16"))
			r.posts.Await(t, "ranges 10.96.0.0/16 10.97.0.0/16")
			r.Remove(serviceCIDRs, "", "kubernetes")
			r.posts.Await(t, "ranges 10.97.0.0/16")
			r.Set(nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{
				Name: "n", Labels: map[string]string{corev1.LabelTopologyZone: "z"}}})
			r.posts.Await(t, "node n")
			if got := r.cache.Node().Zone; got != "z" {
				t.Errorf("zone is %q, want %q", got, "z")
			}
		})
	}
}

// TestSource_IgnoresMetadataOnlyUpdates: an update that changes only the metadata of a Service is not posted.
func TestSource_IgnoresMetadataOnlyUpdates(t *testing.T) {
	r := populated(t)
	touched := apiService("a", 80)
	touched.Annotations = map[string]string{"note": "touched"}
	r.Set(services, touched)
	r.Set(services, apiService("b", 81))
	if got := r.posts.Await(t, "spec ns/b"); len(got) != 1 {
		t.Errorf("%v was posted, want nothing for the touched Service", got)
	}
}

// TestSource_IgnoredServiceBecomesGone: a Service that becomes one that is not proxied is posted as removed.
func TestSource_IgnoredServiceBecomesGone(t *testing.T) {
	r := populated(t)
	external := apiService("a", 80)
	external.Spec.Type = corev1.ServiceTypeExternalName
	r.Set(services, external)
	r.posts.Await(t, "spec ns/a gone")
	r.Set(services, apiService("a", 80))
	r.posts.Await(t, "spec ns/a")
}

// TestSource_SurvivesOutage: after an outage, the source posts only the differences, and its status and log show the
// outage and its end.
func TestSource_SurvivesOutage(t *testing.T) {
	r := populated(t)
	if err := r.Stop(); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "all resources report the outage", func() bool {
		return !slices.ContainsFunc(r.source.Status(), func(s Status) bool { return s.FailingSince.IsZero() })
	})
	r.posts.Expect(t)

	// While nobody looks, one Service changes and one slice goes. The history is
	// compacted, so that only a new list can tell.
	r.Set(services, apiService("a", 81))
	r.Remove(endpointSlices, "ns", "b-1")
	r.Compact()
	if err := r.Start(); err != nil {
		t.Fatal(err)
	}
	lines := r.posts.Await(t, "spec ns/a")
	if !slices.Contains(lines, "slice ns/b b-1 gone") {
		lines = append(lines, r.posts.Await(t, "slice ns/b b-1 gone")...)
	}
	slices.Sort(lines)
	if want := []string{"slice ns/b b-1 gone", "spec ns/a"}; !slices.Equal(lines, want) {
		t.Errorf("after the outage %v was posted, want only the differences %v", lines, want)
	}
	testenv.Eventually(t, "no resource is failing", func() bool {
		return !slices.ContainsFunc(r.source.Status(), func(s Status) bool { return !s.FailingSince.IsZero() })
	})
	if r.logs.FilterMessageSnippet("cannot read from the API server").Len() == 0 || r.logs.FilterMessageSnippet("reachable again").Len() == 0 {
		t.Error("the log tells nothing about the outage and its end")
	}
}

// relisted waits until the source has asked for a resource anew.
func (r *rig) relisted(t *testing.T, resource string, before int) {
	t.Helper()
	testenv.Eventually(t, "a new request for "+resource, func() bool { return len(r.Asked(resource)) > before })
}

// TestSource_RelistsWhenExpired: when the server's history expired, the source lists again and posts only changes.
func TestSource_RelistsWhenExpired(t *testing.T) {
	r := populated(t)
	before := len(r.Asked(services))
	r.Compact() // running watches get 410 Gone
	r.relisted(t, services, before)
	r.Set(services, apiService("a", 82))
	if got := r.posts.Await(t, "spec ns/a"); len(got) != 1 {
		t.Errorf("relist after 410 posted %v, want the change only", got)
	}
}

// TestSource_AcceptsRestoredServer: the source follows a restored server whose resource versions are older than the
// known ones.
func TestSource_AcceptsRestoredServer(t *testing.T) {
	r := populated(t)
	if err := r.Stop(); err != nil {
		t.Fatal(err)
	}
	r.Rewind() // versions known to the client are in the server's future
	if err := r.Start(); err != nil {
		t.Fatal(err)
	}
	r.Set(services, apiService("a", 83))
	if got := r.posts.Await(t, "spec ns/a"); len(got) != 1 {
		t.Errorf("a restored server led to %v, want the change only", got)
	}
}

// TestSource_SendsSelectors: the source requests each resource with its selectors, preferably in protobuf.
func TestSource_SendsSelectors(t *testing.T) {
	r := populated(t)
	want := map[string][2]string{
		services:       {"!service.kubernetes.io/service-proxy-name", "spec.clusterIP!=None"},
		endpointSlices: {"!service.kubernetes.io/headless", ""},
		nodes:          {"", "metadata.name=n"},
		serviceCIDRs:   {"", ""},
	}
	for resource, selectors := range want {
		for _, request := range r.Asked(resource) {
			got := [2]string{request.Query.Get("labelSelector"), request.Query.Get("fieldSelector")}
			if got != selectors {
				t.Errorf("%s was asked for with selectors %q, want %q", resource, got, selectors)
			}
			if !strings.HasPrefix(request.Accept, Protobuf) || !strings.Contains(request.Accept, "application/json") {
				t.Errorf("%s was asked for as %q, want protobuf first and JSON besides", resource, request.Accept)
			}
		}
	}
}

// TestSource_StreamsLists: the source reads each resource with a single request that streams list and watch.
func TestSource_StreamsLists(t *testing.T) {
	r := populated(t)
	for _, resource := range watched {
		asked := r.Asked(resource)
		if len(asked) != 1 || asked[0].Query.Get("sendInitialEvents") != "true" {
			t.Errorf("%s: %d requests, want a single one that streams list and watch", resource, len(asked))
		}
	}
}

// TestSource_FirstListConsistent: the first list is consistent, even if the server's watch cache lags behind. Otherwise
// endpoints that the previous process removed could come back for a moment.
func TestSource_FirstListConsistent(t *testing.T) {
	for name, plain := range map[string]bool{"streamed": false, "plain": true} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.StreamLists(!plain)
			r.populate()
			r.Lag()
			r.Set(services, apiService("a", 81))
			r.run(t)
			posts := r.posts.Await(t, "primed ns/a ns/b")
			r.Set(services, apiService("c", 80))
			posts = append(posts, r.posts.Await(t, "spec ns/c")...)
			posts = slices.DeleteFunc(posts, func(post string) bool { return post != "spec ns/a" })
			if len(posts) != 1 {
				t.Errorf("%d states of the Service were posted, want the newest only", len(posts))
			}
			for _, resource := range watched {
				for _, request := range r.Asked(resource) {
					if request.Query.Get("watch") == "" && request.Query.Get("limit") != "" {
						t.Errorf("%s: a page was asked for, which older servers read from etcd", resource)
					}
				}
			}
		})
	}
}

// TestSource_StartWithoutQuorum: a start without an etcd quorum uses the server's watch cache, so that a node without
// rules gets some.
func TestSource_StartWithoutQuorum(t *testing.T) {
	r := newRig(t)
	r.StreamLists(false)
	r.populate()
	r.LoseQuorum()
	r.run(t)
	r.posts.Await(t, "primed ns/a ns/b")
}

// TestSource_SpeaksJSON: the source can read all resources as JSON.
func TestSource_SpeaksJSON(t *testing.T) {
	r := newRig(t)
	config := clientConfig(r.Server)
	config.ContentType, config.AcceptContentTypes = "application/json", "application/json"
	made, err := NewForREST(Config{NodeName: "n"}, config, r.cache, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	r.source = made
	r.populate()
	r.run(t)
	r.complete(t)
}

// TestSource_WithoutServiceCIDRs: the source works without ServiceCIDRs if these are not served or forbidden, warns
// once, and reads them when they become available.
func TestSource_WithoutServiceCIDRs(t *testing.T) {
	resource := schema.GroupResource{Group: networkingv1.GroupName, Resource: serviceCIDRs}
	for name, rejection := range map[string]*apierrors.StatusError{
		"not served": apierrors.NewNotFound(resource, ""),
		"forbidden":  apierrors.NewForbidden(resource, "", nil),
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.populate()
			r.Reject(serviceCIDRs, rejection)
			r.run(t)
			r.posts.Await(t, "primed ns/a ns/b")
			testenv.Eventually(t, "several attempts", func() bool { return len(r.Asked(serviceCIDRs)) > 3 })
			if got := r.logs.FilterMessageSnippet("optional API resource").Len(); got != 1 {
				t.Errorf("warned %d times, want once", got)
			}
			if !r.source.Status()[3].Absent {
				t.Error("status does not say that ServiceCIDRs are absent")
			}
			r.Reject(serviceCIDRs, nil)
			r.posts.Await(t, "ranges 10.96.0.0/16")
		})
	}
}

// TestSource_KeepsDeletedNode: the source keeps the last state of a deleted Node and logs the deletion.
func TestSource_KeepsDeletedNode(t *testing.T) {
	r := populated(t)
	r.Remove(nodes, "", "n")
	testenv.Eventually(t, "the deletion is logged", func() bool {
		return r.logs.FilterMessageSnippet("Node object deleted").Len() == 1
	})
	if node := r.cache.Node(); node == nil || !node.Deleted || node.Name != "n" {
		t.Errorf("the last state of the Node is %+v, want it to be kept and deleted", node)
	}
}

// TestSource_SeededNodeFoundDeleted: a seeded Node that was deleted before the first list is kept as deleted.
func TestSource_SeededNodeFoundDeleted(t *testing.T) {
	r := newRig(t)
	r.populate()
	r.Remove(nodes, "", "n")
	r.cache.SetNode(&service.NodeObject{Name: "n", Zone: "z"})
	r.run(t)
	r.complete(t)
	testenv.Eventually(t, "the Node is deleted", func() bool { return r.cache.Node().Deleted })
	if node := r.cache.Node(); node.Name != "n" || node.Zone != "z" {
		t.Errorf("the last state of the Node is %+v", node)
	}
}

// TestSource_StopsWhileBackingOff: Run ends during a long backoff, although client-go's sleep ignores the context. The
// cleanup of run fails if it does not.
func TestSource_StopsWhileBackingOff(t *testing.T) {
	r := newRig(t)
	if err := r.Stop(); err != nil {
		t.Fatal(err)
	}
	r.source.backoff = &wait.Backoff{Duration: time.Hour, Cap: time.Hour, Steps: 1, Factor: 1}
	r.run(t)
	testenv.Eventually(t, "all resources report the outage", func() bool {
		return !slices.ContainsFunc(r.source.Status(), func(s Status) bool { return s.FailingSince.IsZero() })
	})
}

func keyOf(name string) service.Key { return service.Key{Namespace: "ns", Name: name} }
