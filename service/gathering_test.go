package service

import (
	"net/netip"
	"slices"
	"testing"
)

// TestDuplicates: the same address and port more than once within one service
// port. The wanted state is that of the one endpoint that remains.
func TestDuplicates(t *testing.T) {
	tests := []struct {
		name  string
		known string
		other string
		want  standing
	}{
		{"running over terminating", "a R", "a S", readyRunning},
		{"ready over unready (kubernetes issue 135593)", "a R", "a U", readyRunning},
		{"ready over nothing", "a R", "a X", readyRunning},
		{"running over ready while terminating", "a R", "a P", readyRunning},
		{"ready while terminating over unready", "a P", "a U", readyTerminating},
		{"terminating over unready: it still serves the address", "a S", "a U", servingTerminating},
		{"terminating over nothing", "a S", "a X", servingTerminating},
		{"unready over nothing", "a U", "a X", unready},
		{"the same twice", "a R", "a R", readyRunning},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			eachFamily(t, func(t *testing.T, family Family) {
				known := newSlice(t, family, "s1", tt.known)
				other := newSlice(t, family, "s2", tt.other)
				both := newSlice(t, family, "s3", tt.known+";"+tt.other)
				port := &newSpec().Ports[0]
				for _, from := range [][]*Slice{{known, other}, {other, known}, {both}, {known, other, both}} {
					var g gathering
					g.gather(family, port, from, thisNode)
					if len(g.candidates) != 1 {
						t.Fatalf("%d candidates, want 1", len(g.candidates))
					}
					if got := g.candidates[0].standing; got != tt.want {
						t.Errorf("standing %d, want %d", got, tt.want)
					}
				}
			})
		})
	}
}

// TestEqualDuplicates: of equally good occurrences the first slice by name
// counts, then the first in it, with its own node and hints; they are not mixed.
func TestEqualDuplicates(t *testing.T) {
	eachFamily(t, func(t *testing.T, family Family) {
		remote := newSlice(t, family, "a-slice", "a R {n2}/{zb}; a R {n1}/{za}")
		local := newSlice(t, family, "b-slice", "a R {n1}/{za}")
		local.Endpoints[0].NodeName = thisNode
		for _, from := range [][]*Slice{{remote, local}, {local, remote}} {
			var g gathering
			g.gather(family, &newSpec().Ports[0], from, thisNode)
			if len(g.candidates) != 1 {
				t.Fatalf("%d candidates, want 1", len(g.candidates))
			}
			c := &g.candidates[0]
			if c.local || g.from[c.slice] != remote || c.index != 0 {
				t.Errorf("kept %+v of slice %s, want the first of a-slice", g.endpoint(c), g.from[c.slice].Name)
			}
		}
	})
}

func TestSlicePortsMatchByNameAndProtocol(t *testing.T) {
	eachFamily(t, func(t *testing.T, family Family) {
		slice := func(name string, ports ...SlicePort) *Slice {
			s := newSlice(t, family, name, "a R; b R")
			s.Ports = ports
			return s
		}
		other := slice("other-family", SlicePort{"dns", UDP, 1})
		other.Family = 1 - family
		from := []*Slice{
			slice("s1", SlicePort{"dns", UDP, 5353}, SlicePort{"dns", TCP, 5354}, SlicePort{"", UDP, 7}),
			slice("s2", SlicePort{"dns", UDP, 5355}, SlicePort{"dns-tcp", UDP, 9}),
			slice("s3"),
			other,
		}
		for _, tt := range []struct {
			port Port
			want []uint16
		}{
			{Port{Name: "dns", Protocol: UDP, Port: 53}, []uint16{5353, 5355, 5353, 5355}},
			{Port{Name: "dns", Protocol: TCP, Port: 53}, []uint16{5354, 5354}},
			{Port{Name: "", Protocol: UDP, Port: 53}, []uint16{7, 7}},
			{Port{Name: "", Protocol: TCP, Port: 53}, nil},
			{Port{Name: "DNS", Protocol: UDP, Port: 53}, nil},
		} {
			var g gathering
			g.gather(family, &tt.port, from, thisNode)
			var got []uint16
			for _, c := range g.candidates {
				got = append(got, c.port)
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("%s/%s: ports %v, want %v", tt.port.Name, tt.port.Protocol, got, tt.want)
			}
		}
	})
}

// TestEndpointsAreSortedByText: the order of rules is that of "ip:port" as text.
func TestEndpointsAreSortedByText(t *testing.T) {
	eachFamily(t, func(t *testing.T, family Family) {
		s := newSlice(t, family, "s1", "")
		for i := range 300 {
			bytes := address(family, 'a').AsSlice()
			bytes[len(bytes)-2], bytes[len(bytes)-1] = byte(i>>4), byte(7*i)
			addr, _ := netip.AddrFromSlice(bytes)
			s.Endpoints = append(s.Endpoints, SliceEndpoint{Addr: addr, Ready: true})
		}
		s.Ports = append(s.Ports, SlicePort{Name: "p80", Protocol: TCP, Port: 9})
		view := Resolve(testKey, newSpec(), []*Slice{s}, facts())
		var got []string
		for _, e := range view.Ports[family][0].Cluster {
			got = append(got, e.String())
		}
		want := slices.Clone(got)
		slices.Sort(want)
		if len(got) != 600 || !slices.Equal(got, want) {
			t.Errorf("%d endpoints, in this order: %v", len(got), got)
		}
	})
}
