// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/iptables/render"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/rendertest"
)

var (
	blue  = service.Key{Namespace: "shop", Name: "blue"}
	green = service.Key{Namespace: "shop", Name: "green"}
)

// changeOf returns the change from before to after. One of them may be nil.
func changeOf(owner service.Key, before, after *dataplane.Object) dataplane.Change {
	c := dataplane.Change{Before: before, After: after, Owner: owner}
	if before != nil {
		c.ID = before.ID
	} else {
		c.ID = after.ID
	}
	return c
}

// composed sets the owners of an object's lines.
func composed(o *dataplane.Object, owners ...service.Key) *dataplane.Object {
	o.Links = &dataplane.Links{Refs: o.Refs()}
	for _, owner := range owners {
		o.Links.Parts = append(o.Links.Parts, dataplane.Part{Owner: owner})
	}
	return o
}

func unsure(c dataplane.Change) dataplane.Change {
	c.Unsure = true
	return c
}

const (
	rejectBlue  = "-d 10.0.0.1/32 -j REJECT"
	rejectGreen = "-d 10.0.0.2/32 -j REJECT"
)

var inputTests = []struct {
	name    string
	changes []dataplane.Change
	want    string
}{
	{
		name:    "one endpoint changes: one section with that chain",
		changes: []dataplane.Change{changeOf(blue, chainObject(render.NAT, "KUBE-SVC-B", "-j DNAT 1"), chainObject(render.NAT, "KUBE-SVC-B", "-j DNAT 2", "-j DNAT 3"))},
		want: `*nat
:KUBE-SVC-B - [0:0]
-A KUBE-SVC-B -j DNAT 2
-A KUBE-SVC-B -j DNAT 3
COMMIT
`,
	},
	{
		name: "first endpoint: translated before the rejection goes",
		changes: []dataplane.Change{
			changeOf(service.Node, chainObject(render.Filter, "KUBE-SERVICES", rejectBlue, rejectGreen), chainObject(render.Filter, "KUBE-SERVICES", rejectGreen)),
			changeOf(blue, nil, chainObject(render.NAT, "KUBE-SVC-B", "-j DNAT")),
		},
		want: `*nat
:KUBE-SVC-B - [0:0]
-A KUBE-SVC-B -j DNAT
COMMIT
*filter
:KUBE-SERVICES - [0:0]
-A KUBE-SERVICES -d 10.0.0.2/32 -j REJECT
COMMIT
`,
	},
	{
		name: "last endpoint: rejected before the translation goes",
		changes: []dataplane.Change{
			changeOf(blue, chainObject(render.NAT, "KUBE-SVC-B", "-j DNAT"), nil),
			changeOf(service.Node, chainObject(render.Filter, "KUBE-SERVICES", rejectGreen), chainObject(render.Filter, "KUBE-SERVICES", rejectBlue, rejectGreen)),
		},
		want: `*filter
:KUBE-SERVICES - [0:0]
-A KUBE-SERVICES -d 10.0.0.1/32 -j REJECT
-A KUBE-SERVICES -d 10.0.0.2/32 -j REJECT
COMMIT
*nat
:KUBE-SVC-B - [0:0]
-X KUBE-SVC-B
COMMIT
`,
	},
	{
		name: "one gains and another loses: filter holds both meanwhile",
		changes: []dataplane.Change{
			changeOf(service.Node, chainObject(render.Filter, "KUBE-SERVICES", rejectBlue), chainObject(render.Filter, "KUBE-SERVICES", rejectGreen)),
			changeOf(blue, nil, chainObject(render.NAT, "KUBE-SVC-B", "-j DNAT")),
			changeOf(green, chainObject(render.NAT, "KUBE-SVC-G", "-j DNAT"), nil),
			changeOf(service.Node, nil, chainObject(render.Filter, "KUBE-NEW")),
			changeOf(service.Node, chainObject(render.Filter, "KUBE-OLD", "-j DROP"), nil),
			changeOf(service.Node, nil, chainObject(render.Mangle, "KUBE-PROXY-CANARY")),
		},
		want: `*filter
:KUBE-SERVICES - [0:0]
:KUBE-NEW - [0:0]
-A KUBE-SERVICES -d 10.0.0.2/32 -j REJECT
-A KUBE-SERVICES -d 10.0.0.1/32 -j REJECT
COMMIT
*mangle
:KUBE-PROXY-CANARY - [0:0]
COMMIT
*nat
:KUBE-SVC-G - [0:0]
:KUBE-SVC-B - [0:0]
-A KUBE-SVC-B -j DNAT
-X KUBE-SVC-G
COMMIT
*filter
:KUBE-SERVICES - [0:0]
:KUBE-OLD - [0:0]
-A KUBE-SERVICES -d 10.0.0.2/32 -j REJECT
-X KUBE-OLD
COMMIT
`,
	},
	{
		name: "filter alone: one section",
		changes: []dataplane.Change{
			changeOf(service.Node, chainObject(render.Filter, "KUBE-SERVICES", rejectBlue), chainObject(render.Filter, "KUBE-SERVICES", rejectGreen)),
			changeOf(service.Node, chainObject(render.Filter, "KUBE-OLD", "-j DROP"), nil),
		},
		want: `*filter
:KUBE-SERVICES - [0:0]
:KUBE-OLD - [0:0]
-A KUBE-SERVICES -d 10.0.0.2/32 -j REJECT
-X KUBE-OLD
COMMIT
`,
	},
	{
		name: "unsure: written whole, nothing of before is trusted",
		changes: []dataplane.Change{
			unsure(changeOf(service.Node, chainObject(render.Filter, "KUBE-SERVICES", "-j KUBE-LOST"), chainObject(render.Filter, "KUBE-SERVICES", rejectGreen))),
			unsure(changeOf(service.Node, chainObject(render.Filter, "KUBE-LOST", "-j DROP"), nil)),
			unsure(changeOf(blue, chainObject(render.NAT, "KUBE-SVC-B", "-j DNAT"), nil)),
		},
		want: `*filter
:KUBE-SERVICES - [0:0]
-A KUBE-SERVICES -d 10.0.0.2/32 -j REJECT
COMMIT
*nat
:KUBE-SVC-B - [0:0]
-X KUBE-SVC-B
COMMIT
*filter
:KUBE-LOST - [0:0]
-X KUBE-LOST
COMMIT
`,
	},
	{
		name: "equal rules are counted, and a new order is growth",
		changes: []dataplane.Change{
			changeOf(service.Node, chainObject(render.Filter, "KUBE-TWICE", "-j A", "-j A"), chainObject(render.Filter, "KUBE-TWICE", "-j A")),
			changeOf(service.Node, chainObject(render.Filter, "KUBE-ORDER", "-j A", "-j B"), chainObject(render.Filter, "KUBE-ORDER", "-j B", "-j A")),
			changeOf(blue, nil, chainObject(render.NAT, "KUBE-SVC-B")),
		},
		want: `*filter
:KUBE-ORDER - [0:0]
-A KUBE-ORDER -j B
-A KUBE-ORDER -j A
COMMIT
*nat
:KUBE-SVC-B - [0:0]
COMMIT
*filter
:KUBE-TWICE - [0:0]
-A KUBE-TWICE -j A
COMMIT
`,
	},
}

func TestInput(t *testing.T) {
	for _, tt := range inputTests {
		t.Run(tt.name, func(t *testing.T) {
			for range 5 {
				changes := slices.Clone(tt.changes)
				rand.Shuffle(len(changes), func(i, j int) { changes[i], changes[j] = changes[j], changes[i] })
				in := newInput(changes)
				if got := in.text.String(); got != tt.want {
					t.Fatalf("input:\n%s\nwant:\n%s", got, tt.want)
				}
				if lines := strings.Count(tt.want, "\n"); in.lines != lines {
					t.Errorf("lines = %d, want %d", in.lines, lines)
				}
				if rules := strings.Count(tt.want, "\n-A "); in.rules != rules {
					t.Errorf("rules = %d, want %d", in.rules, rules)
				}
			}
		})
	}
}

// TestInput_OneChainIsIndependent: the input for a chain does not depend on the previous content of the chain.
func TestInput_OneChainIsIndependent(t *testing.T) {
	one := changeOf(blue, chainObject(render.NAT, "KUBE-SVC-B", "-j DNAT 1"), chainObject(render.NAT, "KUBE-SVC-B", "-j DNAT 2"))
	alone := newInput([]dataplane.Change{one}).text.String()
	for _, before := range []*dataplane.Object{nil, chainObject(render.NAT, "KUBE-SVC-B"), chainObject(render.NAT, "KUBE-SVC-B", "-j DNAT 9", "-j DNAT 8")} {
		other := one
		other.Before = before
		if got := newInput([]dataplane.Change{other}).text.String(); got != alone {
			t.Errorf("with %v before:\n%s\nwant:\n%s", before, got, alone)
		}
	}
}

func TestInput_Suspect(t *testing.T) {
	in := newInput([]dataplane.Change{
		changeOf(service.Node,
			composed(chainObject(render.Filter, "KUBE-SERVICES", rejectGreen, rejectBlue, "-j RETURN"), green, blue, service.Node),
			composed(chainObject(render.Filter, "KUBE-SERVICES", "-j NEW", "-j RETURN"), blue, service.Node)),
		changeOf(blue, nil, chainObject(render.NAT, "KUBE-SVC-B", "-j DNAT 1", "-j DNAT 2")),
		changeOf(green, chainObject(render.NAT, "KUBE-SVC-G", "-j DNAT"), nil),
	})
	want := []struct {
		line  string
		owner service.Key // service.Node: no suspect
	}{
		{"*filter", service.Node},
		{":KUBE-SERVICES - [0:0]", service.Node},
		{"-A KUBE-SERVICES -j NEW", blue},
		{"-A KUBE-SERVICES -j RETURN", service.Node},
		{"-A KUBE-SERVICES " + rejectGreen, green},
		{"-A KUBE-SERVICES " + rejectBlue, blue},
		{"COMMIT", service.Node},
		{"*nat", service.Node},
		{":KUBE-SVC-G - [0:0]", green},
		{":KUBE-SVC-B - [0:0]", blue},
		{"-A KUBE-SVC-B -j DNAT 1", blue},
		{"-A KUBE-SVC-B -j DNAT 2", blue},
		{"-X KUBE-SVC-G", green},
		{"COMMIT", service.Node},
		{"*filter", service.Node},
		{":KUBE-SERVICES - [0:0]", service.Node},
		{"-A KUBE-SERVICES -j NEW", blue},
		{"-A KUBE-SERVICES -j RETURN", service.Node},
		{"COMMIT", service.Node},
	}
	lines := strings.Split(strings.TrimSuffix(in.text.String(), "\n"), "\n")
	if len(lines) != len(want) {
		t.Fatalf("input:\n%s", in.text.String())
	}
	for i, w := range want {
		if lines[i] != w.line {
			t.Fatalf("line %d is %q, want %q", i+1, lines[i], w.line)
		}
		got, ok := in.suspect(i + 1)
		if ok != (w.owner != service.Node) || (ok && got != w.owner) {
			t.Errorf("line %d (%s): suspect %v, %v; want %v", i+1, w.line, got, ok, w.owner)
		}
	}
	for _, line := range []int{-1, 0, len(lines) + 1, 1 << 40} {
		if got, ok := in.suspect(line); ok {
			t.Errorf("line %d does not exist, but belongs to %v", line, got)
		}
	}
}

// TestText_OrdersTablesChainsRulesHooks: Text lists tables in order, each with its chains, then their rules, then the
// hooks.
func TestText_OrdersTablesChainsRulesHooks(t *testing.T) {
	var objects []dataplane.Object
	for _, o := range []*dataplane.Object{
		chainObject(render.NAT, "KUBE-SVC-A", "-p tcp -j DNAT --to-destination 10.0.0.1:80"),
		chainObject(render.NAT, "KUBE-SERVICES", "-d 10.1.0.1/32 -j KUBE-SVC-A", "-j RETURN"),
		chainObject(render.Mangle, render.ChainCanary),
		chainObject(render.Filter, "KUBE-FORWARD", "-j ACCEPT"),
	} {
		objects = append(objects, *o)
	}
	for _, h := range render.HookRows() {
		if h.Target == render.ChainServices && h.Table == render.NAT || h.Target == "KUBE-FORWARD" {
			objects = append(objects, h.Object())
		}
	}
	got, err := Text(objects)
	if err != nil {
		t.Fatal(err)
	}
	want := `*mangle
:KUBE-PROXY-CANARY - [0:0]
COMMIT
*filter
:KUBE-FORWARD - [0:0]
-A KUBE-FORWARD -j ACCEPT
-I FORWARD 1 -m comment --comment "kubernetes forwarding rules" -j KUBE-FORWARD
COMMIT
*nat
:KUBE-SVC-A - [0:0]
:KUBE-SERVICES - [0:0]
-A KUBE-SERVICES -d 10.1.0.1/32 -j KUBE-SVC-A
-A KUBE-SERVICES -j RETURN
-A KUBE-SVC-A -p tcp -j DNAT --to-destination 10.0.0.1:80
-I OUTPUT 1 -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-I PREROUTING 1 -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
COMMIT
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestText_RejectsOtherObjects: Text rejects objects that are neither chains nor hooks.
func TestText_RejectsOtherObjects(t *testing.T) {
	world := rendertest.WorldOf(service.IPv4)
	element := render.NewRenderer(service.IPv4, render.Options{}).Service(context.Background(), world.View(world.Port()), world.Facts())
	for problem, objects := range map[string][]dataplane.Object{
		"no layout composed it":                  element,
		"neither a chain nor a hook":             {{ID: dataplane.ID{Container: "raw", Name: "KUBE-SVC-A"}}},
		`"KUBE-SVC-A" in "raw/PREROUTING" is ne`: {{ID: dataplane.ID{Container: "raw/PREROUTING", Name: "KUBE-SVC-A"}}},
	} {
		if text, err := Text(objects); err == nil || !strings.Contains(err.Error(), problem) {
			t.Errorf("%q, %v; want an error with %q", text, err, problem)
		}
	}
}
