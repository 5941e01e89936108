// SPDX-License-Identifier: Apache-2.0

package reduce

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/sluice-proxy/sluice/service"
)

func TestNotes(t *testing.T) {
	n := notes{kind: "Service", namespace: "ns1", name: "svc1"}
	n.add(at("spec.externalIPs", 1), "the entry is skipped", "%q is not an IP address", "bad")
	want := `Service ns1/svc1: spec.externalIPs[1]: "bad" is not an IP address; the entry is skipped`
	if len(n.warnings) != 1 || n.warnings[0].String() != want {
		t.Errorf("got %v, want %q", n.warnings, want)
	}
}

// TestNotes_ObjectWithoutNamespace: the text of an object without a namespace contains only its kind and name.
func TestNotes_ObjectWithoutNamespace(t *testing.T) {
	n := notes{kind: "Node", name: "n1"}
	if got := n.object(); got != "Node n1" {
		t.Errorf("got %q", got)
	}
}

func TestPath_String(t *testing.T) {
	tests := []struct {
		path path
		want string
	}{
		{field("spec.clusterIP"), "spec.clusterIP"},
		{at("spec.externalIPs", 1), "spec.externalIPs[1]"},
		{at("spec.ports", 0).dot("nodePort"), "spec.ports[0].nodePort"},
		{at("endpoints", 12).dot("addresses[0]"), "endpoints[12].addresses[0]"},
	}
	for _, tt := range tests {
		if got := tt.path.String(); got != tt.want {
			t.Errorf("got %q, want %q", got, tt.want)
		}
	}
}

// TestNotes_WarningsShort: warnings are short even for the longest values. An annotation has up to 256 KiB, and each
// node logs the warnings.
func TestNotes_WarningsShort(t *testing.T) {
	for _, long := range []string{strings.Repeat("\x00", 250<<10), strings.Repeat("日", 80<<10), "x" + strings.Repeat("é", 100<<10)} {
		_, warnings := lenient.Service(newService(func(o *corev1.Service) {
			o.Annotations = map[string]string{annotationScheduler: long, annotationProxyProtocol: long}
			o.Spec.ExternalIPs = []string{long}
			o.Spec.LoadBalancerSourceRanges = []string{long}
			o.Spec.Ports[0].Protocol = corev1.Protocol(long)
		}))
		_, more := lenient.EndpointSlice(newSlice(func(o *discoveryv1.EndpointSlice) {
			o.Annotations = map[string]string{corev1.EndpointsLastChangeTriggerTime: long}
			o.Endpoints = []discoveryv1.Endpoint{{Addresses: []string{long}}}
		}))
		if warnings = append(warnings, more...); len(warnings) < 7 {
			t.Fatalf("only %d warnings: %v", len(warnings), warnings)
		}
		for _, w := range warnings {
			if text := w.String(); len(text) > 4*service.QuoteMax+300 || strings.Contains(text, `\xe`) || strings.Contains(text, `\xc`) {
				t.Errorf("%s: a warning of %d bytes: %.200q", w.Field, len(text), text)
			}
		}
	}
}
