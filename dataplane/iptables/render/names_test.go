// SPDX-License-Identifier: Apache-2.0

package render

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/sluice-proxy/sluice/dataplane/iptables/tree"
	"github.com/sluice-proxy/sluice/service"
)

// TestPortHash compares names of chains with those of kube-proxy v1.37.
func TestPortHash(t *testing.T) {
	for _, test := range []struct {
		subject  string
		protocol service.Protocol
		want     string
	}{
		{"default/kubernetes:https", service.TCP, "KUBE-SVC-NPX46M4PTMTKRN6Y"},
		{"kube-system/kube-dns:dns", service.UDP, "KUBE-SVC-TCOU7JCQXEZGVUNU"},
		{"kube-system/kube-dns:dns-tcp", service.TCP, "KUBE-SVC-ERIFXISQEP7F7OF4"},
		{"kube-system/kube-dns:metrics", service.TCP, "KUBE-SVC-JD5MR3NA4I4DYORP"},
		{"ns1/svc1:p80", service.TCP, "KUBE-SVC-XPGD46QRK7WJZT7O"},
		{"ns1/svc1:p80", service.UDP, "KUBE-SVC-OJWW7NSBVZTDHXNW"},
		{"ns1/svc1:p80", service.SCTP, "KUBE-SVC-GFCIFIA5VTFSTMSM"},
		{"ns1/svc1", service.TCP, "KUBE-SVC-AQI2S6QIMU7PVVRP"},
	} {
		if got := prefixCluster + portHash(test.subject, test.protocol); got != test.want {
			t.Errorf("%s %s: %s, want %s", test.subject, test.protocol, got, test.want)
		}
	}
}

func TestEndpointHash(t *testing.T) {
	for _, test := range []struct {
		subject  string
		protocol service.Protocol
		endpoint string
		want     string
	}{
		{"ns1/svc1:p80", service.TCP, "10.180.0.1:80", "KUBE-SEP-SXIVWICOYRO3J4NJ"},
		{"ns1/svc1:p80", service.TCP, "[fd00:10:180::1]:80", "KUBE-SEP-OGYCNMB4EMRUSJ6N"},
		{"default/kubernetes:https", service.TCP, "172.18.0.2:6443", "KUBE-SEP-V2PECCYPB6X2GSCW"},
		{"kube-system/kube-dns:dns", service.UDP, "10.244.0.3:53", "KUBE-SEP-6E7XQMQ4RAYOWTTM"},
	} {
		got := prefixEndpoint + endpointHash(test.subject, test.protocol, netip.MustParseAddrPort(test.endpoint))
		if got != test.want {
			t.Errorf("%s %s %s: %s, want %s", test.subject, test.protocol, test.endpoint, got, test.want)
		}
	}
}

// TestContainers_AllKnown: every container either contains elements of frontends or is listed as shared. A new or
// renamed container fails here until this is decided.
func TestContainers_AllKnown(t *testing.T) {
	others := []string{natHairpin.Name(), filterHealth.Name()}
	known := map[string]bool{}
	for _, c := range Containers {
		_, ofFrontends := frontendShapes[c.Name()]
		if ofFrontends == slices.Contains(others, c.Name()) {
			t.Errorf("%s: holds frontends: %v, is listed as another: %v", c.Name(), ofFrontends, !ofFrontends)
		}
		if ofFrontends && c.Shape == tree.BySource {
			t.Errorf("%s: no frontend is a source", c.Name())
		}
		known[c.Name()] = true
	}
	for name := range frontendShapes {
		if !known[name] {
			t.Errorf("%s holds frontends and is no container", name)
		}
	}
}
