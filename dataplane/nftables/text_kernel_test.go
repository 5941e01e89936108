package nftables_test

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/nftables"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/writertest"
)

// variety returns Services that together need every kind of object.
func variety(f writertest.Fixture) []service.Spec {
	named := func(spec service.Spec, name string, last byte) service.Spec {
		spec.Key.Name = name
		renumber := func(a netip.Addr) netip.Addr {
			b := a.AsSlice()
			b[len(b)-1] = last
			renumbered, _ := netip.AddrFromSlice(b)
			return renumbered
		}
		spec.Ports = slices.Clone(spec.Ports)
		if spec.Ports[0].NodePort != 0 {
			spec.Ports[0].NodePort += uint16(last)
		}
		spec.ClusterIPs[f.Family] = renumber(spec.ClusterIPs[f.Family])
		for _, list := range []*[]netip.Addr{&spec.LoadBalancerVIPs[f.Family], &spec.ExternalIPs[f.Family]} {
			*list = slices.Clone(*list)
			for i := range *list {
				(*list)[i] = renumber((*list)[i])
			}
		}
		return spec
	}
	local := named(f.Exposed(), "local", 1)
	local.ExternalLocal, local.InternalLocal = true, true
	guarded := named(f.Exposed(), "guarded", 2)
	guarded.SourceRanges[f.Family] = []netip.Prefix{
		f.Allowed, f.ClusterCIDR, netip.PrefixFrom(f.Node, f.Node.BitLen()), netip.PrefixFrom(f.Pod, f.Pod.BitLen()),
	}
	sticky := named(f.Exposed(), "sticky", 3)
	sticky.AffinitySeconds, sticky.ExternalLocal = 600, true
	datagrams := named(f.Exposed(), "datagrams", 4)
	datagrams.Ports[0].Protocol = service.UDP
	return []service.Spec{f.Spec(), local, guarded, sticky, datagrams}
}

// serveVariety renders and wants them all.
func (w *world) serveVariety(f writertest.Fixture) []dataplane.Object {
	objects := w.renderer.Node(&w.facts)
	w.want(service.Node, slices.Clone(objects))
	for i, spec := range variety(f) {
		slice := f.Slice(f.A, f.B, f.C)
		slice.Service = spec.Key
		view := service.Resolve(spec.Key, &spec, []*service.Slice{slice}, &w.facts)
		if i == 4 {
			view = service.Resolve(spec.Key, &spec, nil, &w.facts)
		}
		rendered := w.renderer.Service(context.Background(), &view, &w.facts)
		objects = append(objects, rendered...)
		w.want(spec.Key, slices.Clone(rendered))
	}
	slices.SortStableFunc(objects, func(a, b dataplane.Object) int { return a.ID.Compare(b.ID) })
	return slices.CompactFunc(objects, func(a, b dataplane.Object) bool { return a.ID == b.ID })
}

// allFacts are node facts that lead to different rules.
func allFacts(f writertest.Fixture) map[string]service.NodeFacts {
	usual := f.Facts()
	byInterface := f.Facts()
	byInterface.Detect[f.Family] = service.LocalDetector{Interface: "cbr0"}
	byInterface.NodePorts[f.Family] = service.NodePortAddresses{Addresses: []netip.Addr{f.Node, f.Second}}
	byPattern := f.Facts()
	byPattern.Detect[f.Family] = service.LocalDetector{Interface: "veth+"}
	byPattern.ServiceCIDRs[f.Family] = []netip.Prefix{f.ServiceCIDR, netip.PrefixFrom(f.VIP, f.VIP.BitLen()-3).Masked()}
	masqueradeAll := f.Facts()
	masqueradeAll.MasqueradeAll = true
	odd := f.Facts()
	odd.Detect[f.Family].CIDR = netip.PrefixFrom(f.ClusterCIDR.Addr(), f.ClusterCIDR.Bits()-3).Masked()
	nothing := service.NodeFacts{Name: "n1"}
	return map[string]service.NodeFacts{
		"usual": usual, "by interface": byInterface, "by pattern": byPattern,
		"masquerade all": masqueradeAll, "odd prefix": odd, "nothing known": nothing,
	}
}

// TestTextAndWriterAgree loads the same objects through nft and through the
// writer, and reads both back.
func TestTextAndWriterAgree(t *testing.T) {
	for _, family := range service.Families {
		f := writertest.NewFixture(family)
		for name, facts := range allFacts(f) {
			t.Run(family.String()+"/"+name, func(t *testing.T) {
				t.Parallel()
				written := newWorld(t, family, nftables.WriterConfig{})
				written.facts = facts
				objects := written.serveVariety(f)
				written.commit()
				compare(t, written.read(), objects, "what the writer wrote")
				if drift := written.audit(); drift.Any() {
					t.Errorf("after writing, %+v", drift)
				}

				text, err := nftables.Text(family, objects)
				if err != nil {
					t.Fatal(err)
				}
				loaded := newWorld(t, family, nftables.WriterConfig{})
				loaded.nft(text, "-f", "-")
				compare(t, loaded.read(), objects, "what nft loaded")

				listed := written.nft("", "list", "table", written.table())
				if again := loaded.nft("", "list", "table", loaded.table()); sortedLines(again) != sortedLines(listed) {
					t.Errorf("nft lists what the writer wrote as\n%s\nand what it loaded itself as\n%s", listed, again)
				}
				for _, name := range []string{"ns1/svc1:p80", "ns1/local:p80", "ns1/guarded:p80", "ns1/sticky/tcp/p80", "ns1/datagrams:p80"} {
					if !strings.Contains(listed, name) {
						t.Errorf("nothing listed names %s", name)
					}
				}
			})
		}
	}
}

// sortedLines makes listings with elements in any order comparable.
func sortedLines(listing string) string {
	fields := strings.FieldsFunc(listing, func(r rune) bool { return r == '\n' || r == ',' })
	for i := range fields {
		fields[i] = strings.Trim(strings.TrimPrefix(strings.TrimSpace(fields[i]), "elements = {"), " }\t")
	}
	slices.Sort(fields)
	return strings.Join(fields, "\n")
}
