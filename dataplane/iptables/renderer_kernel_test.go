package iptables

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/iptables/dispatch"
	"github.com/sluice-proxy/sluice/service"
)

// Everything that is rendered is printed back by the tools byte for byte: both
// variants, both families, in a fresh network namespace each time.
func TestKernelPrintsWhatWasRendered(t *testing.T) {
	for _, family := range service.Families {
		for _, variant := range []string{"legacy", "nft"} {
			tool := tablesTool{family: family, variant: variant}
			for _, c := range renderCases {
				t.Run(fmt.Sprintf("%s/%s/%s", family, variant, c.name), func(t *testing.T) {
					tool.comparePrinted(t, wholeNode(family, c.render(family)))
				})
			}
			t.Run(fmt.Sprintf("%s/%s/trees", family, variant), func(t *testing.T) {
				tool.comparePrinted(t, wholeNode(family, renderTrees(family)))
			})
		}
	}
}

// wholeNode folds elements into chains, and adds the usual scaffold where the
// objects do not bring their own.
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

// renderTrees fills every container, so that jumps by prefix, by protocol and by
// port range occur.
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
		objects = append(objects, renderer.Service(view, facts)...)
	}
	return objects
}

// tablesTool is one variant of the tools of one family.
type tablesTool struct {
	family  service.Family
	variant string
}

// command gives "ip6tables-nft-save" and the like.
func (tool tablesTool) command(verb string) string {
	name := "iptables"
	if tool.family == service.IPv6 {
		name = "ip6tables"
	}
	return name + "-" + tool.variant + "-" + verb
}

// comparePrinted loads objects into a new namespace and compares what the tools
// print there.
func (tool tablesTool) comparePrinted(t *testing.T, objects []dataplane.Object) {
	t.Helper()
	restore, save := tool.command("restore"), tool.command("save")
	for _, name := range []string{"unshare", restore, save} {
		if _, err := exec.LookPath(name); err != nil {
			t.Fatalf("%s is needed: install the packages iptables (1.8 or later) and util-linux", name)
		}
	}
	arguments := []string{"--net"}
	if os.Getuid() != 0 {
		arguments = append(arguments, "--user", "--map-root-user")
	}
	script := fmt.Sprintf("%s && for t in mangle filter nat; do %s -t $t; done", restore, save)
	cmd := exec.Command("unshare", append(arguments, "sh", "-c", script)...)
	cmd.Env = append(os.Environ(), "XTABLES_LOCKFILE="+filepath.Join(t.TempDir(), "lock"))
	cmd.Stdin = strings.NewReader(restoreInput(objects))
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v: %s\n%s", restore, err, stderr.String(), numbered(restoreInput(objects)))
	}
	if got, want := printedRules(string(out)), wantedRules(objects); !maps.Equal(got, want) {
		for _, chain := range slices.Sorted(maps.Keys(want)) {
			if got[chain] != want[chain] {
				t.Errorf("%s\nprinted  %s\nrendered %s", chain, got[chain], want[chain])
			}
		}
		t.Errorf("%d chains are printed, %d were rendered", len(got), len(want))
	}
}

// placeOf gives the table and the chain whose rules an object holds. Hooks live
// in "table/CHAIN".
func placeOf(o dataplane.Object) (table, chain string) {
	if table, chain, hook := strings.Cut(o.ID.Container, "/"); hook {
		return table, chain
	}
	return o.ID.Container, o.ID.Name
}

// restoreInput declares every chain before any rule.
func restoreInput(objects []dataplane.Object) string {
	var b strings.Builder
	for _, table := range []Table{Mangle, Filter, NAT} {
		var rules strings.Builder
		fmt.Fprintf(&b, "*%s\n", table)
		for _, o := range slices.SortedFunc(slices.Values(objects), byID) {
			if in, chain := placeOf(o); in == string(table) {
				if strings.HasPrefix(chain, "KUBE-") {
					fmt.Fprintf(&b, ":%s - [0:0]\n", chain)
				}
				for _, line := range bodyLines(o) {
					fmt.Fprintf(&rules, "-A %s %s\n", chain, line)
				}
			}
		}
		b.WriteString(rules.String() + "COMMIT\n")
	}
	return b.String()
}

func byID(a, b dataplane.Object) int { return a.ID.Compare(b.ID) }

func bodyLines(o dataplane.Object) []string {
	if o.Body == "" {
		return nil
	}
	return strings.Split(o.Body, "\n")
}

// wantedRules gives the rules of each chain, keyed by "table CHAIN".
func wantedRules(objects []dataplane.Object) map[string]string {
	want := map[string]string{}
	for _, o := range slices.SortedFunc(slices.Values(objects), byID) {
		table, chain := placeOf(o)
		for _, line := range bodyLines(o) {
			want[table+" "+chain] += "\n" + line
		}
		want[table+" "+chain] += ""
	}
	return want
}

// printedRules reads what iptables-save printed; built-in chains without rules
// are left out.
func printedRules(out string) map[string]string {
	printed := map[string]string{}
	var table string
	for line := range strings.Lines(out) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case strings.HasPrefix(line, "*"):
			table = line[1:]
		case strings.HasPrefix(line, ":KUBE-"):
			chain, _, _ := strings.Cut(line[1:], " ")
			printed[table+" "+chain] += ""
		case strings.HasPrefix(line, "-A "):
			chain, rule, _ := strings.Cut(line[3:], " ")
			printed[table+" "+chain] += "\n" + rule
		}
	}
	return printed
}

func numbered(input string) string {
	var b strings.Builder
	for i, line := range slices.Collect(strings.Lines(input)) {
		fmt.Fprintf(&b, "%4d %s", i+1, line)
	}
	return b.String()
}

// Addresses are printed as the C library does, which netip does not always.
func TestKernelPrintsAddresses(t *testing.T) {
	addrs := []string{
		"::1.2.3.4", "::1:0", "::ffff:1.2.3.4", "::2:3:4:5:6:7", "0:1:2:3:4:5:6:7", "1:0:2::", "1::2:0:0:3",
		"2001:db8::", "fd00::1",
	}
	var rules, endpoints []string
	for _, text := range addrs {
		addr := netip.MustParseAddr(text)
		for _, bits := range []int{1, 96, 112, 128} {
			prefix := netip.PrefixFrom(addr, bits).Masked()
			rules = append(rules, "-s "+string(dispatch.AppendPrefix(nil, prefix))+" -j RETURN")
		}
		endpoints = append(endpoints, "-p tcp -j DNAT --to-destination ["+string(dispatch.AppendAddr(nil, addr))+"]:80")
	}
	for _, variant := range []string{"legacy", "nft"} {
		t.Run(variant, func(t *testing.T) {
			tablesTool{family: service.IPv6, variant: variant}.comparePrinted(t, []dataplane.Object{
				fixed(NAT, "KUBE-SVC-A", nil, rules...),
				fixed(NAT, "KUBE-SVC-B", nil, endpoints...),
			})
		})
	}
}

// TestKernelPacketsFindTheirWayThroughTrees sends one packet to each UDP frontend of several hundred
// Services, served and refused ones, and counts it at the frontend's own rule, once.
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
		k.run("ip", version, "address", "add", own.String(), "dev", "net")
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
