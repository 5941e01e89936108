package iptables

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/iptables/rules"
	"github.com/sluice-proxy/sluice/service"
)

// TestKernelPrintsWhatWasRendered: the tools print back byte for byte what is rendered, in both
// variants and families, each time in a fresh network namespace.
func TestKernelPrintsWhatWasRendered(t *testing.T) {
	for _, c := range renderCases {
		t.Run(c.name, func(t *testing.T) {
			onKernels(t, func(k *kernelTest) { k.expectPrinted(wholeNode(k.family, c.render(k.family))) })
		})
	}
	t.Run("trees", func(t *testing.T) {
		onKernels(t, func(k *kernelTest) { k.expectPrinted(wholeNode(k.family, renderTrees(k.family))) })
	})
}

// expectPrinted loads objects and compares them with what the tools print.
func (k *kernelTest) expectPrinted(objects []dataplane.Object) {
	k.Helper()
	text, err := Text(objects)
	if err != nil {
		k.Fatal(err)
	}
	k.restore(text)
	chains, rules := 0, 0
	printed := map[string]*saved{}
	for _, table := range tables {
		s, err := readTable(k.Context(), k.tool, table)
		if err != nil {
			k.Fatal(err)
		}
		printed[string(table)] = s
		for _, chain := range s.chains {
			if rules += len(s.rules[chain]); !isBuiltIn(chain) {
				chains++
			}
		}
	}
	for i := range objects {
		o := &objects[i]
		table, chain := placeOf(*o)
		switch s := printed[table]; {
		case isBuiltIn(chain):
			if !s.has(chain, o.Body) {
				k.Errorf("%s %s prints\n%s\nwithout\n%s", table, chain, strings.Join(s.rules[chain], "\n"), o.Body)
			}
		case !dataplane.Same(s.object(chain), o):
			k.Errorf("%s %s\nprinted  %+v\nrendered %+v", table, chain, s.object(chain), o)
		default:
			chains--
		}
		rules -= len(ruleLines(o))
	}
	if chains != 0 || rules != 0 {
		k.Errorf("%d chains and %d rules more are printed than were rendered", chains, rules)
	}
}

// wholeNode folds elements into chains, and adds the parts of the usual scaffold that are missing
// in the objects.
func wholeNode(family service.Family, objects []dataplane.Object) []dataplane.Object {
	layout := NewLayout(family)
	owned := map[dataplane.ID]dataplane.Object{}
	scaffold := NewRenderer(family, Options{MasqueradeBit: 14}).Node(worldOf(family).facts())
	for _, o := range append(scaffold, objects...) {
		if o.Kind == dataplane.Element {
			layout.Put(&o, service.Node)
			continue
		}
		owned[o.ID] = o
	}
	for _, c := range layout.Flush() {
		owned[c.ID] = *c.Object
	}
	return slices.Collect(maps.Values(owned))
}

// renderTrees fills every container, so that jumps by prefix, by protocol and by port range occur.
func renderTrees(family service.Family) []dataplane.Object {
	w := worldOf(family)
	renderer, facts := NewRenderer(family, Options{MasqueradeBit: 14}), w.facts()
	base := w.services.Addr().As16()
	var objects []dataplane.Object
	for i := range 400 {
		addr := base
		addr[15] = byte(i * 7)
		p := w.openPort()
		p.Name, p.NodePort = fmt.Sprintf("p%d", i), uint16(30000+i)
		p.Protocol = []service.Protocol{service.TCP, service.UDP, service.SCTP}[i%3]
		if i%2 == 0 {
			// Half of them share one address and differ in the port.
			addr[15], p.Port = 1, uint16(1000+97*i)
		}
		p.ClusterIP = netip.AddrFrom16(addr).Unmap()
		endpoint := w.endpointAddrs[0].As16()
		endpoint[15] = byte(i)
		p.Cluster = []service.Endpoint{{AddrPort: netip.AddrPortFrom(netip.AddrFrom16(endpoint).Unmap(), 80), Local: true}}
		if i%5 == 0 {
			p.HasAny, p.Cluster = false, nil
		} else if i%5 == 1 {
			p.SourceRanges = []netip.Prefix{w.allowed}
		}
		view := w.view(p)
		view.HealthCheckNodePort = uint16(20000 + i)
		objects = append(objects, renderer.Service(context.Background(), view, facts)...)
	}
	return objects
}

// placeOf returns the table and the chain whose rules an object holds. Hooks are in "table/CHAIN".
func placeOf(o dataplane.Object) (table, chain string) {
	if table, chain, hook := strings.Cut(o.ID.Container, "/"); hook {
		return table, chain
	}
	return o.ID.Container, o.ID.Name
}

// TestKernelPrintsAddresses: the tools print addresses as the C library does, netip sometimes
// differs.
func TestKernelPrintsAddresses(t *testing.T) {
	addrs := []string{
		"::1.2.3.4", "::1:0", "::ffff:1.2.3.4", "::2:3:4:5:6:7", "0:1:2:3:4:5:6:7", "1:0:2::", "1::2:0:0:3",
		"2001:db8::", "fd00::1",
	}
	var sources, endpoints []string
	for _, text := range addrs {
		addr := netip.MustParseAddr(text)
		for _, bits := range []int{1, 96, 112, 128} {
			prefix := netip.PrefixFrom(addr, bits).Masked()
			sources = append(sources, "-s "+string(rules.AppendPrefix(nil, prefix))+" -j RETURN")
		}
		endpoints = append(endpoints, "-p tcp -j DNAT --to-destination ["+string(rules.AppendAddr(nil, addr))+"]:80")
	}
	onKernels(t, func(k *kernelTest) {
		if k.family == service.IPv6 {
			k.expectPrinted([]dataplane.Object{
				fixed(NAT, "KUBE-SVC-A", nil, sources...),
				fixed(NAT, "KUBE-SVC-B", nil, endpoints...),
			})
		}
	})
}

// TestKernelPacketsFindTheirWayThroughTrees sends one packet to each UDP frontend of several
// hundred Services, served and refused ones, and counts it at the frontend's own rule, once.
func TestKernelPacketsFindTheirWayThroughTrees(t *testing.T) {
	onKernels(t, func(k *kernelTest) {
		w := worldOf(k.family)
		version, own, everywhere := "-4", netip.PrefixFrom(w.node, 24), "0.0.0.0/0"
		if k.family == service.IPv6 {
			version, own, everywhere = "-6", netip.PrefixFrom(w.node, 64), "::/0"
		}
		k.run("ip", "link", "add", "net", "type", "veth", "peer", "name", "far")
		k.run("ip", "link", "set", "far", "up")
		k.run("ip", "link", "set", "net", "up")
		k.run("ip", version, "address", "add", own.String(), "dev", "net", "nodad") // usable at once
		k.run("ip", version, "route", "add", everywhere, "dev", "net", "src", w.node.String())
		objects := renderTrees(k.family)
		text, err := Text(wholeNode(k.family, objects))
		if err != nil {
			k.Fatal(err)
		}
		k.restore(text)

		rules := map[netip.AddrPort]string{}
		for _, o := range objects {
			f, ok := Naming{}.Frontend(o.ID)
			if !ok || f.Protocol != service.UDP || f.Addr.IsValid() && !w.services.Contains(f.Addr) {
				continue // the external addresses are claimed by many of these Services
			}
			if !f.Addr.IsValid() {
				f.Addr = w.node
			}
			rules[netip.AddrPortFrom(f.Addr, f.Port)] = o.Body
		}
		for to := range rules {
			conn, err := net.Dial("udp", to.String())
			if err != nil {
				k.Fatal(err)
			}
			_, _ = conn.Write([]byte("x")) // fails where the Service is refused
			_ = conn.Close()
		}
		printed := k.run(k.tool.programs.save, "-c", "-t", "nat") + k.run(k.tool.programs.save, "-c", "-t", "filter")
		counted := map[string]string{}
		for line := range strings.Lines(printed) {
			if fields := strings.SplitN(strings.TrimSpace(line), " ", 4); len(fields) == 4 && fields[1] == "-A" {
				counted[fields[3]], _, _ = strings.Cut(fields[0], ":")
			}
		}
		for to, rule := range rules {
			if counted[rule] != "[1" {
				k.Errorf("%v: %q has counted %q, want [1", to, rule, counted[rule])
			}
		}
		if len(rules) < 250 {
			k.Errorf("only %d frontends were asked", len(rules))
		}
	})
}
