// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/iptables/render"
	"github.com/sluice-proxy/sluice/dataplane/iptables/rules"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/rendertest"
)

// TestKernelText_PrintedAsRendered: the tools print all rendered rules byte for byte, in both variants and families.
func TestKernelText_PrintedAsRendered(t *testing.T) {
	for _, c := range rendertest.IPTables {
		t.Run(c.Name, func(t *testing.T) {
			onFamilies(t, service.Families[:], func(k *kernelTest) {
				k.expectPrinted(rendertest.IPTablesNode(k.family, rendertest.RenderIPTables(c, k.family)))
			})
		})
	}
	t.Run("trees", func(t *testing.T) {
		onFamilies(t, service.Families[:], func(k *kernelTest) {
			k.expectPrinted(rendertest.IPTablesNode(k.family, rendertest.IPTablesTrees(k.family)))
		})
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
	for _, table := range render.Tables {
		s, err := readTable(k.Context(), k.tool, table, DefaultOwnership())
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
		table, chain := rendertest.IPTablesPlace(*o)
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
		rules -= len(render.RuleLines(o))
	}
	if chains != 0 || rules != 0 {
		k.Errorf("%d chains and %d rules more are printed than were rendered", chains, rules)
	}
}

// TestKernelText_Addresses: rendered addresses look as the tools print them. The C library sometimes prints an address
// in another form than netip.
func TestKernelText_Addresses(t *testing.T) {
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
	onFamilies(t, []service.Family{service.IPv6}, func(k *kernelTest) {
		k.expectPrinted([]dataplane.Object{
			render.FixedChain(render.NAT, "KUBE-SVC-A", nil, sources...),
			render.FixedChain(render.NAT, "KUBE-SVC-B", nil, endpoints...),
		})
	})
}

// TestKernelTrees_PacketsFindFrontends: one packet to each UDP frontend of several hundred Services, served and
// rejected ones, counts once, at the rule of its frontend.
func TestKernelTrees_PacketsFindFrontends(t *testing.T) {
	onKernels(t, func(k *kernelTest) {
		w := rendertest.WorldOf(k.family)
		version, own, everywhere := "-4", netip.PrefixFrom(w.Node, 24), "0.0.0.0/0"
		if k.family == service.IPv6 {
			version, own, everywhere = "-6", netip.PrefixFrom(w.Node, 64), "::/0"
		}
		k.run("ip", "link", "add", "net", "type", "veth", "peer", "name", "far")
		k.run("ip", "link", "set", "far", "up")
		k.run("ip", "link", "set", "net", "up")
		k.run("ip", version, "address", "add", own.String(), "dev", "net", "nodad") // usable at once
		k.run("ip", version, "route", "add", everywhere, "dev", "net", "src", w.Node.String())
		objects := rendertest.IPTablesTrees(k.family)
		text, err := Text(rendertest.IPTablesNode(k.family, objects))
		if err != nil {
			k.Fatal(err)
		}
		k.restore(text)

		rules := map[netip.AddrPort]string{}
		for _, o := range objects {
			f, ok := render.Naming{}.Frontend(o.ID)
			if !ok || f.Protocol != service.UDP || f.Addr.IsValid() && !w.Services.Contains(f.Addr) {
				continue // the external addresses are claimed by many of these Services
			}
			if !f.Addr.IsValid() {
				f.Addr = w.Node
			}
			rules[netip.AddrPortFrom(f.Addr, f.Port)] = o.Body
		}
		for to := range rules {
			conn, err := net.Dial("udp", to.String())
			if err != nil {
				k.Fatal(err)
			}
			_, _ = conn.Write([]byte("x")) // fails where the Service is rejected
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
