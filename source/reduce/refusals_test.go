// SPDX-License-Identifier: Apache-2.0

package reduce

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-proxy/sluice/service"
)

func annotated(name, value string) *corev1.Service {
	object := &corev1.Service{Spec: corev1.ServiceSpec{ClusterIP: "10.96.0.1"}}
	object.Namespace, object.Name = "ns1", "svc1"
	object.Annotations = map[string]string{name: value}
	return object
}

func TestService_NoEndpoints(t *testing.T) {
	core := Policy{NoEndpoints: map[service.NoEndpoints]string{service.NoEndpointsPass: "is not possible in this mode"}}
	for _, c := range []struct {
		value  string
		policy Policy
		want   service.NoEndpoints
		warned string
	}{
		{value: "reject", want: service.NoEndpointsReject},
		{value: " drop ", want: service.NoEndpointsDrop},
		{value: "pass", want: service.NoEndpointsPass},
		{value: "", warned: `"": must be reject, drop or pass`},
		{value: "Drop", warned: `"Drop": must be reject, drop or pass`},
		{value: "pass", policy: core, warned: "pass is not possible in this mode"},
		{value: "drop", policy: core, want: service.NoEndpointsDrop},
	} {
		spec, warnings := c.policy.Service(annotated(annotationNoEndpoints, c.value))
		if spec.NoEndpoints != c.want {
			t.Errorf("%q: %v, want %v", c.value, spec.NoEndpoints, c.want)
		}
		expectWarning(t, warnings, "metadata.annotations[sluice.dev/no-endpoints]", c.warned)
	}
}

func TestService_DenyRanges(t *testing.T) {
	for _, c := range []struct {
		value     string
		policy    Policy
		four, six string
		warned    string
	}{
		{value: "10.0.0.0/8, 2001:db8::/32", four: "10.0.0.0/8", six: "2001:db8::/32"},
		{value: "10.1.0.0/16,10.0.0.0/8,10.2.3.4", four: "10.0.0.0/8"},
		{value: "192.0.2.7,192.0.2.0/25,192.0.2.128/25", four: "192.0.2.0/24"},
		{value: "192.0.2.7,2001:db8::1", four: "192.0.2.7/32", six: "2001:db8::1/128"},
		{value: "0.0.0.0/0", four: "0.0.0.0/0"},
		{value: "10.0.0.0/8,10.0.0.0/33,192.0.2.1/32", four: "10.0.0.0/8 192.0.2.1/32", warned: `entry "10.0.0.0/33" is neither a CIDR nor an IP address`},
		{value: "everyone", warned: `entry "everyone" is neither`},
		{value: " , ", warned: "the list is empty"},
		{value: "10.0.0.0/8", policy: Policy{NoDenyRanges: "not possible here"}, warned: "not possible here"},
	} {
		spec, warnings := c.policy.Service(annotated(annotationDenyRanges, c.value))
		for family, want := range []string{c.four, c.six} {
			if got := strings.Trim(fmt.Sprint(spec.DenyRanges[family]), "[]"); got != want {
				t.Errorf("%q: %s, want %s", c.value, got, want)
			}
		}
		expectWarning(t, warnings, "metadata.annotations[sluice.dev/deny-source-ranges]", c.warned)
	}
}

// TestService_DenyRangesBounded: the number of deny ranges is limited, and the ranges within the limit are denied.
func TestService_DenyRangesBounded(t *testing.T) {
	var entries []string
	for i := range denyRangesMax + 10 {
		entries = append(entries, fmt.Sprintf("10.%d.%d.0/24", i/128, i%128*2))
	}
	spec, warnings := Policy{}.Service(annotated(annotationDenyRanges, strings.Join(entries, ",")))
	if got := spec.DenyRanges[service.IPv4]; len(got) != denyRangesMax || !slices.Contains(got, netip.MustParsePrefix(entries[255])) {
		t.Errorf("%d ranges", len(got))
	}
	expectWarning(t, warnings, "metadata.annotations[sluice.dev/deny-source-ranges]", `entry "10.2.0.0/24" exceeds the limit of 256 ranges`)
}
