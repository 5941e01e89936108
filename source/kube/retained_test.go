// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/client-go/rest"

	"github.com/sluice-proxy/sluice/source"
	"github.com/sluice-proxy/sluice/test/sourcetest"
)

// sliceTexts and serviceTexts write a text into each field that takes one.
var sliceTexts = map[string]func(o *discoveryv1.EndpointSlice, text string){
	"zone":     func(o *discoveryv1.EndpointSlice, text string) { o.Endpoints[0].Zone = &text },
	"nodeName": func(o *discoveryv1.EndpointSlice, text string) { o.Endpoints[0].NodeName = &text },
	"hostname": func(o *discoveryv1.EndpointSlice, text string) { o.Endpoints[0].Hostname = &text },
	"hint of a zone": func(o *discoveryv1.EndpointSlice, text string) {
		hintsOf(o).ForZones = []discoveryv1.ForZone{{Name: text}}
	},
	"hint of a node": func(o *discoveryv1.EndpointSlice, text string) {
		hintsOf(o).ForNodes = []discoveryv1.ForNode{{Name: text}}
	},
	"address": func(o *discoveryv1.EndpointSlice, text string) { o.Endpoints[0].Addresses = []string{text} },
	"scoped address": func(o *discoveryv1.EndpointSlice, text string) {
		o.Endpoints[0].Addresses = []string{"fe80::1%" + text}
	},
	"port name": func(o *discoveryv1.EndpointSlice, text string) { o.Ports[0].Name = &text },
	"protocol":  func(o *discoveryv1.EndpointSlice, text string) { o.Ports[0].Protocol = (*corev1.Protocol)(&text) },
	"owner":     func(o *discoveryv1.EndpointSlice, text string) { o.Labels[discoveryv1.LabelServiceName] = text },
	"trigger": func(o *discoveryv1.EndpointSlice, text string) {
		o.Annotations = map[string]string{corev1.EndpointsLastChangeTriggerTime: text}
	},
	"weight": func(o *discoveryv1.EndpointSlice, text string) {
		o.Annotations = map[string]string{"sluice.dev/weight": text}
	},
	"a thousand zones": func(o *discoveryv1.EndpointSlice, text string) {
		for zone := range slices.Chunk([]byte(text), len(text)/1000) {
			name := string(zone)
			o.Endpoints = append(o.Endpoints, discoveryv1.Endpoint{Addresses: []string{"10.244.1.1"}, Zone: &name})
		}
	},
	"many valid hints": func(o *discoveryv1.EndpointSlice, text string) {
		for i := range len(text) / 50 {
			name := text[len(text)-10:] + "-" + strconv.Itoa(i)
			hintsOf(o).ForNodes = append(hintsOf(o).ForNodes, discoveryv1.ForNode{Name: name})
		}
	},
}

func hintsOf(o *discoveryv1.EndpointSlice) *discoveryv1.EndpointHints {
	if o.Endpoints[0].Hints == nil {
		o.Endpoints[0].Hints = &discoveryv1.EndpointHints{}
	}
	return o.Endpoints[0].Hints
}

var serviceTexts = map[string]func(o *corev1.Service, text string){
	"port name":   func(o *corev1.Service, text string) { o.Spec.Ports[0].Name = text },
	"external IP": func(o *corev1.Service, text string) { o.Spec.ExternalIPs = []string{text} },
	"load balancer": func(o *corev1.Service, text string) {
		o.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: text}}
	},
	"range": func(o *corev1.Service, text string) { o.Spec.LoadBalancerSourceRanges = []string{text} },
	"scheduler": func(o *corev1.Service, text string) {
		o.Annotations = map[string]string{"sluice.dev/ipvs-scheduler": text}
	},
	"balancing": func(o *corev1.Service, text string) { o.Annotations = map[string]string{"sluice.dev/balancing": text} },
	"padded": func(o *corev1.Service, text string) {
		o.Annotations = map[string]string{"sluice.dev/balancing": "maglev" + strings.Repeat(" ", len(text))}
	},
}

// TestStores_ObjectTextNotRetained: the text of objects is not retained: the heap does not grow with a thousand writes
// of objects with 1.4 MB of text each.
func TestStores_ObjectTextNotRetained(t *testing.T) {
	const size, writes = 1_400_000, 1000
	s, err := NewForREST(Config{NodeName: "n1"}, &rest.Config{Host: "127.0.0.1:1"}, source.NewCache(sourcetest.NewRecorder(), source.Options{}), zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	ofServices, ofSlices := s.Stores()
	do := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	text := func(i int) string {
		return strconv.Itoa(i) + "." + strings.Repeat("a", size) + "." + strconv.Itoa(i) + "0000000"
	}
	each := writes / (len(sliceTexts) + len(serviceTexts))
	before := heap()
	for field, set := range sliceTexts {
		for i := range each {
			o := apiSlice("web", "web-1", "10.244.0.1")
			set(o, text(i))
			do(ofSlices.Update(o))
		}
		do(ofSlices.Delete(apiSlice("web", "web-1", "10.244.0.1")))
		if grown := int64(heap()) - int64(before); grown > 3*size {
			t.Errorf("%s of a slice: the heap grew by %d bytes after %d writes", field, grown, each)
		}
	}
	for field, set := range serviceTexts {
		for i := range each {
			o := apiService("web", 80)
			set(o, text(i))
			do(ofServices.Update(o))
		}
		if grown := int64(heap()) - int64(before); grown > 3*size {
			t.Errorf("%s of a Service: the heap grew by %d bytes after %d writes", field, grown, each)
		}
	}
	runtime.KeepAlive(s)
}

// heap returns the bytes of live objects.
func heap() uint64 {
	var m runtime.MemStats
	for range 2 { // what a weak pointer refers to takes a second cycle
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
