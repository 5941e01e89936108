package reduce

import (
	"slices"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/sluice-proxy/sluice/service"
)

func TestEndpointAddresses(t *testing.T) {
	tests := []struct {
		name      string
		kind      discoveryv1.AddressType
		addresses []string
		want      string // empty: skipped
		warned    string
	}{
		{"IPv4", discoveryv1.AddressTypeIPv4, []string{"10.244.0.1"}, "10.244.0.1", ""},
		{"IPv6", discoveryv1.AddressTypeIPv6, []string{"fd00::1"}, "fd00::1", ""},
		{"only the first counts", discoveryv1.AddressTypeIPv4, []string{"10.244.0.1", "bad"}, "10.244.0.1", ""},
		{"canonical", discoveryv1.AddressTypeIPv4, []string{"010.244.0.001"}, "10.244.0.1", ""},
		{"mapped", discoveryv1.AddressTypeIPv4, []string{"::ffff:10.244.0.1"}, "10.244.0.1", ""},
		{"none", discoveryv1.AddressTypeIPv4, nil, "", "endpoints[0].addresses"},
		{"unparsable", discoveryv1.AddressTypeIPv4, []string{"bad"}, "", "endpoints[0].addresses[0]"},
		{"of the other family", discoveryv1.AddressTypeIPv4, []string{"fd00::1"}, "", "endpoints[0].addresses[0]"},
		{"mapped is not IPv6", discoveryv1.AddressTypeIPv6, []string{"::ffff:10.244.0.1"}, "", "endpoints[0].addresses[0]"},
		{"with a zone", discoveryv1.AddressTypeIPv6, []string{"fe80::1%eth0"}, "", "endpoints[0].addresses[0]"},
	}
	good := map[discoveryv1.AddressType]string{
		discoveryv1.AddressTypeIPv4: "10.244.9.9",
		discoveryv1.AddressTypeIPv6: "fd00::99",
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			slice, warnings := EndpointSlice(newSlice(func(o *discoveryv1.EndpointSlice) {
				o.AddressType = tt.kind
				// A good one behind shows that the bad one stops nothing.
				o.Endpoints = []discoveryv1.Endpoint{
					{Addresses: tt.addresses}, {Addresses: []string{good[tt.kind]}},
				}
			}))
			var got, want []string
			for _, e := range slice.Endpoints {
				got = append(got, e.Addr.String())
			}
			if tt.want != "" {
				want = append(want, tt.want)
			}
			if want = append(want, good[tt.kind]); !slices.Equal(got, want) {
				t.Errorf("got %v, want %v", got, want)
			}
			var warned []string
			if tt.warned != "" {
				warned = append(warned, tt.warned)
			}
			checkWarnings(t, warnings, "EndpointSlice ns1/svc1-abc", warned...)
		})
	}
}

func TestConditions(t *testing.T) {
	yes, no := new(true), new(false)
	tests := []struct {
		name                        string
		ready, serving, terminating *bool
		want                        service.SliceEndpoint
	}{
		{"all unknown", nil, nil, nil, service.SliceEndpoint{Ready: true, Serving: true}},
		{"all true", yes, yes, yes, service.SliceEndpoint{Ready: true, Serving: true, Terminating: true}},
		{"all false", no, no, no, service.SliceEndpoint{}},
		{"terminating", no, yes, yes, service.SliceEndpoint{Serving: true, Terminating: true}},
		{"not ready, nothing else known", no, nil, nil, service.SliceEndpoint{Serving: true}},
	}
	for _, tt := range tests {
		slice, _ := EndpointSlice(newSlice(func(o *discoveryv1.EndpointSlice) {
			o.Endpoints[0].Conditions = discoveryv1.EndpointConditions{
				Ready: tt.ready, Serving: tt.serving, Terminating: tt.terminating,
			}
		}))
		got := slice.Endpoints[0]
		if got.Ready != tt.want.Ready || got.Serving != tt.want.Serving || got.Terminating != tt.want.Terminating {
			t.Errorf("%s: got %+v, want %+v", tt.name, got, tt.want)
		}
	}
}

func TestNodeNameAndHints(t *testing.T) {
	slice, warnings := EndpointSlice(newSlice(func(o *discoveryv1.EndpointSlice) {
		o.Endpoints = []discoveryv1.Endpoint{
			{Addresses: []string{"10.244.0.1"}, NodeName: new("n1"), Zone: new("za"), Hints: &discoveryv1.EndpointHints{
				ForZones: []discoveryv1.ForZone{{Name: "za"}, {Name: "zb"}},
				ForNodes: []discoveryv1.ForNode{{Name: "n1"}},
			}},
			{Addresses: []string{"bad"}, Hints: &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: "zx"}}}},
			{Addresses: []string{"10.244.0.2"}},
			{Addresses: []string{"10.244.0.3"}, Hints: &discoveryv1.EndpointHints{}},
			{Addresses: []string{"10.244.0.4"}, Hints: &discoveryv1.EndpointHints{ForNodes: []discoveryv1.ForNode{{Name: "n2"}}}},
		}
	}))
	want := []service.SliceEndpoint{
		{NodeName: "n1", ForZones: []string{"za", "zb"}, ForNodes: []string{"n1"}},
		{}, {},
		{ForNodes: []string{"n2"}},
	}
	if len(slice.Endpoints) != len(want) {
		t.Fatalf("%d endpoints, want %d", len(slice.Endpoints), len(want))
	}
	for i, w := range want {
		e := &slice.Endpoints[i]
		if e.NodeName != w.NodeName || !slices.Equal(e.ForZones, w.ForZones) || !slices.Equal(e.ForNodes, w.ForNodes) {
			t.Errorf("endpoint %d: got %+v, want %+v", i, e, w)
		}
		// The lists share an array; none may reach into the next.
		if cap(e.ForZones) != len(e.ForZones) || cap(e.ForNodes) != len(e.ForNodes) {
			t.Errorf("endpoint %d: a list has room behind it", i)
		}
	}
	checkWarnings(t, warnings, "EndpointSlice ns1/svc1-abc", "endpoints[1].addresses[0]")
}
