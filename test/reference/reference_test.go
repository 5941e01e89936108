// SPDX-License-Identifier: Apache-2.0

package reference

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// parse reads endpoints as the worked examples of the specification write them:
//
//	a R {n1}/{za,zb}; n S; b X -/{za}
//
// A letter is an endpoint, n runs on this node. R is ready, S serves while it terminates,
// U serves and is not ready, X does neither. Hints for nodes and zones follow.
func parse(t *testing.T, text string) (all []Endpoint) {
	t.Helper()
	for one := range strings.SplitSeq(text, ";") {
		words := strings.Fields(one)
		if len(words) == 0 {
			continue
		}
		e := Endpoint{At: at(words[0]), Local: words[0] == "n"}
		switch words[1] {
		case "R":
			e.Ready, e.Serving = true, true
		case "S":
			e.Serving, e.Terminating = true, true
		case "U":
			e.Serving = true
		case "X":
		default:
			t.Fatalf("unknown state in %q", one)
		}
		if len(words) > 2 {
			nodes, zones, _ := strings.Cut(words[2], "/")
			e.ForNodes, e.ForZones = hints(nodes), hints(zones)
		}
		all = append(all, e)
	}
	return all
}

func at(letter string) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, letter[0]}), 80)
}

func hints(text string) []string {
	if text == "-" {
		return nil
	}
	return strings.Split(strings.Trim(text, "{}"), ",")
}

func letters(all []Endpoint) string {
	var names []string
	for _, e := range all {
		names = append(names, string(rune(e.At.Addr().As4()[3])))
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

func TestSelect_Topology(t *testing.T) {
	for i, c := range []struct{ endpoints, zone, want string }{
		{"a R -/{za}; b R -/{zb}; c R -/{zc}", "za", "a"},
		{"a R -/{za}; b R -/-; c R -/{za}", "za", "a b c"},
		{"a X -/{za}; b R -/{zb}", "za", "b"},
		{"a R {n1}/{za}; b R {n2}/{za}; c R {n3}/{zb}", "za", "a"},
		{"a X {n1}/{za}; b R {n2}/{za}; c R {n3}/{zb}", "za", "b"},
		{"a R {n1}/{za}; b R -/{za}; c R {n3}/{zb}", "za", "a b"},
		{"a R -/{za,zb}; b R -/{zb}", "zb", "a b"},
		{"a R -/{za}; b R -/{zb}; c R -/{zc}", "", "a b c"},
		{"a S -/{zb}", "za", "a"},
	} {
		if got := letters(Select(parse(t, c.endpoints), "n1", c.zone, Zones{}).Cluster); got != c.want {
			t.Errorf("T%d: %s: got %q, want %q", i+1, c.endpoints, got, c.want)
		}
	}
}

// TestSelect_PolicyAndTermination: each combination of policies and endpoint states selects the expected endpoints for
// the ClusterIP, clients outside and pods.
func TestSelect_PolicyAndTermination(t *testing.T) {
	const local, cluster = true, false
	for i, c := range []struct {
		internal, external         bool
		endpoints                  string
		toClusterIP, outside, pods string
	}{
		{cluster, cluster, "n R; f R", "f n", "f n", "f n"},
		{local, cluster, "n R; f R", "n", "f n", "f n"},
		{local, cluster, "f R", "drop", "f", "f"},
		{local, cluster, "f X", "reject", "reject", "reject"},
		{local, cluster, "f S", "drop", "f", "f"},
		{cluster, local, "n R; f R", "f n", "n", "f n"},
		{cluster, local, "f R", "f", "drop", "f"},
		{cluster, local, "n S; f R", "f", "n", "f"},
		{cluster, local, "n S; f S", "f n", "n", "f n"},
		{cluster, local, "f S", "f", "drop", "f"},
		{cluster, cluster, "n S; f R", "f", "f", "f"},
		{cluster, cluster, "n S; f S", "f n", "f n", "f n"},
		{local, local, "n R; f R", "n", "n", "f n"},
		{local, cluster, "n R; f R", "n", "f n", "f n"},
		{local, local, "f R", "drop", "drop", "f"},
		{cluster, local, "n X; f X", "reject", "reject", "reject"},
		{cluster, local, "n R -/{zb}; f R -/{za}", "f", "n", "f"},
		{cluster, cluster, "n U", "reject", "reject", "reject"},
	} {
		s := Select(parse(t, c.endpoints), "n1", "za", Zones{})
		for _, ask := range []struct {
			traffic Traffic
			want    string
		}{
			{Traffic{Internal: true, PolicyLocal: c.internal}, c.toClusterIP},
			{Traffic{PolicyLocal: c.external}, c.outside},
			{Traffic{PolicyLocal: c.external, Detect: true, Pod: true}, c.pods},
		} {
			r := s.Route(ask.traffic)
			got := map[Fate]string{Refused: "reject", Dropped: "drop", Delivered: letters(r.To)}[r.Fate]
			if got != ask.want {
				t.Errorf("P%d: %s, %+v: got %q, want %q", i+1, c.endpoints, ask.traffic, got, ask.want)
			}
		}
	}
}

func TestRoute_Masquerade(t *testing.T) {
	s := Select(parse(t, "n R; f R"), "n1", "", Zones{})
	for _, c := range []struct {
		traffic Traffic
		want    bool
	}{
		{Traffic{Internal: true}, false},
		{Traffic{Internal: true, MasqueradeAll: true}, true},
		{Traffic{Internal: true, Detect: true}, true},
		{Traffic{Internal: true, Detect: true, Pod: true}, false},
		{Traffic{Internal: true, Detect: true, Node: true}, true},
		{Traffic{}, true},
		{Traffic{Detect: true, Pod: true}, true},
		{Traffic{PolicyLocal: true, MasqueradeAll: true}, false},
		{Traffic{PolicyLocal: true, Detect: true, Pod: true, Node: true}, false},
		{Traffic{PolicyLocal: true, Node: true}, true},
	} {
		if got := s.Route(c.traffic).Masqueraded; got != c.want {
			t.Errorf("%+v: masqueraded %t, want %t", c.traffic, got, c.want)
		}
	}
}

func TestDistinct(t *testing.T) {
	for _, c := range []struct{ listed, want, disputed string }{
		{"a R; b R; a X", "a R; b R", ""},
		{"a X; a S; a U", "a S", ""},
		{"a R -/{za}; a R -/{zb}", "a R -/{za}", "a"},
		{"a R -/{za}; a X -/{zb}", "a R -/{za}", ""},
	} {
		got, disputed := Distinct(parse(t, c.listed))
		var names []string
		for _, a := range disputed {
			names = append(names, string(rune(a.Addr().As4()[3])))
		}
		if want := parse(t, c.want); fmt.Sprint(got) != fmt.Sprint(want) || strings.Join(names, " ") != c.disputed {
			t.Errorf("%s: got %v, disputed %v; want %v, %s", c.listed, got, names, want, c.disputed)
		}
	}
}
