package nftables_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/dataplanetest"
	"github.com/sluice-proxy/sluice/dataplane/nftables"
	"github.com/sluice-proxy/sluice/service"
)

// releases are the versions of nft that have to understand what we load: this
// machine's, and that of the Debian release after it.
func releases(t *testing.T) map[string]string {
	t.Helper()
	newer := os.Getenv("SLUICE_NEWER_NFT")
	if newer == "" {
		var trouble bytes.Buffer
		cmd := exec.Command(filepath.Join("..", "..", "hack", "newer-nft"))
		cmd.Stderr = &trouble
		path, err := cmd.Output()
		if err != nil {
			t.Fatalf("no newer nft: %v: %s\nset SLUICE_NEWER_NFT to one, or let hack/newer-nft reach a mirror", err, trouble.String())
		}
		newer = strings.TrimSpace(string(path))
	}
	found := map[string]string{"this release": "nft", "newer release": newer}
	versions := map[string]bool{}
	for name, program := range found {
		printed, err := exec.Command(program, "--version").Output()
		if err != nil {
			t.Fatalf("%s: %v", program, err)
		}
		t.Logf("%s: %s", name, printed)
		versions[string(printed)] = true
	}
	if len(versions) < len(found) {
		t.Fatalf("%s is no other version than this machine's", newer)
	}
	return found
}

// quietly runs a version of nft, which must not complain.
func (w *world) quietly(program, input string, args ...string) string {
	w.Helper()
	cmd := exec.Command(program, args...)
	cmd.Stdin = strings.NewReader(input)
	var printed, complaints bytes.Buffer
	cmd.Stdout, cmd.Stderr = &printed, &complaints
	if err := w.node.Run(cmd); err != nil || complaints.Len() > 0 {
		w.Errorf("%s %s: %v\n%s", filepath.Base(program), strings.Join(args, " "), err, shortened(complaints.String()))
	}
	return printed.String()
}

func shortened(text string) string { return text[:min(len(text), 2000)] }

// plus counts addresses on.
func plus(addr netip.Addr, n int) netip.Addr {
	for range n {
		addr = addr.Next()
	}
	return addr
}

// multitude gives Services that have much of what there can be much of.
func multitude(f dataplanetest.Fixture) (specs []service.Spec, slices []*service.Slice) {
	apart := func(name string, n int) service.Spec {
		spec := f.Exposed()
		spec.Key.Name = name
		spec.ClusterIPs[f.Family] = plus(spec.ClusterIPs[f.Family], n)
		spec.LoadBalancerVIPs[f.Family] = []netip.Addr{plus(f.VIP, n), plus(f.VIP, n+1)}
		spec.ExternalIPs[f.Family] = []netip.Addr{plus(f.ExternalIP, n)}
		spec.Ports[0].NodePort += uint16(n)
		return spec
	}
	ports := apart("ports", 10)
	ofPorts := f.Slice(f.A, f.B, f.C)
	ports.Ports, ofPorts.Ports, ports.ExternalLocal = nil, nil, true
	for i := range 500 {
		port := service.Port{
			Name: fmt.Sprintf("p%d", i), Protocol: []service.Protocol{service.TCP, service.UDP, service.SCTP}[i%3],
			Port: uint16(1000 + i), NodePort: uint16(31000 + i),
		}
		ports.Ports = append(ports.Ports, port)
		ofPorts.Ports = append(ofPorts.Ports, service.SlicePort{Name: port.Name, Protocol: port.Protocol, Port: uint16(8000 + i)})
	}
	ranges := apart("ranges", 20)
	base := f.Outside
	for i := range 200 {
		// No two overlap, and the prefixes are of eight lengths.
		ranges.SourceRanges[f.Family] = append(ranges.SourceRanges[f.Family], netip.PrefixFrom(base, base.BitLen()-i%8).Masked())
		base = plus(base, 1<<8)
	}
	endpoints := apart("endpoints", 30)
	sticky := apart("clients", 40)
	sticky.AffinitySeconds, sticky.InternalLocal = 10800, true
	var many []netip.Addr
	for i := range 40 {
		many = append(many, plus(f.B, i))
	}
	return []service.Spec{ports, ranges, endpoints, sticky}, []*service.Slice{ofPorts, f.Slice(f.A, f.B), f.Slice(many...), f.Slice(append(many[:20], f.A)...)}
}

// everything writes all that there is.
func everything(t *testing.T, family service.Family) (*world, []dataplane.Object) {
	t.Helper()
	f := dataplanetest.NewFixture(family)
	w := newWorld(t, family, nftables.WriterConfig{})
	w.facts = f.Facts()
	w.facts.NodePorts[family] = service.NodePortAddresses{Addresses: []netip.Addr{f.Node, f.Second}}
	objects := w.serveVariety(f)
	specs, slices := multitude(f)
	for i, spec := range specs {
		slices[i].Service = spec.Key
		view := service.Resolve(spec.Key, &spec, slices[i:i+1], &w.facts)
		rendered := w.renderer.Service(&view, &w.facts)
		objects = append(objects, rendered...)
		w.want(spec.Key, append([]dataplane.Object(nil), rendered...))
	}
	w.commit()
	return w, distinct(objects)
}

// distinct leaves one of each identity.
func distinct(objects []dataplane.Object) []dataplane.Object {
	slices.SortStableFunc(objects, func(a, b dataplane.Object) int { return a.ID.Compare(b.ID) })
	return slices.CompactFunc(objects, func(a, b dataplane.Object) bool { return a.ID == b.ID })
}

// TestEveryReleaseListsEverything: whatever the writer writes, people can look at
// with the nft that they have, in full and part by part.
func TestEveryReleaseListsEverything(t *testing.T) {
	programs := releases(t)
	for _, family := range service.Families {
		t.Run(family.String(), func(t *testing.T) {
			t.Parallel()
			w, objects := everything(t, family)
			compare(t, w.read(), objects, "what the writer wrote")
			for name, program := range programs {
				t.Run(name, func(t *testing.T) {
					w := &world{TB: t, family: family, node: w.node}
					w.listAll(program)
					w.listParts(program, objects)
					w.checkJSON(program, objects)
				})
			}
		})
	}
}

// listAll lists the table as a whole in all ways that there are.
func (w *world) listAll(program string) {
	w.Helper()
	family, table, _ := strings.Cut(w.table(), " ")
	whole := w.quietly(program, "", "list", "ruleset")
	if listed := w.quietly(program, "", "list", "table", family, table); listed != whole {
		w.Errorf("the table is listed as\n%s\nand the ruleset as\n%s", shortened(listed), shortened(whole))
	}
	for _, option := range []string{"-n", "-nn", "-nnn", "-y", "-p", "-N", "-S", "-a", "-s", "-t"} {
		if listed := w.quietly(program, "", option, "list", "ruleset"); !strings.Contains(listed, "chain services {") {
			w.Errorf("%s lists\n%s", option, shortened(listed))
		}
	}
	for _, kind := range []string{"tables", "chains", "sets", "maps"} {
		for _, option := range []string{"-nn", "-j"} {
			if listed := w.quietly(program, "", option, "list", kind, family); !strings.Contains(listed, table) {
				w.Errorf("%s list %s gives\n%s", option, kind, shortened(listed))
			}
		}
	}
}

// listParts lists sets, maps and chains by name; of those that differ in hashes
// and numbers, one.
func (w *world) listParts(program string, objects []dataplane.Object) {
	w.Helper()
	done := map[string]bool{}
	for _, o := range objects {
		stem, _, _ := strings.Cut(strings.Map(stemRune, o.ID.Container+" "+o.ID.Name), "#")
		if done[stem] {
			continue
		}
		done[stem] = true
		kind := o.ID.Container
		switch kind {
		case "chain":
		case "set":
			kind = kindOf(o)
		default:
			continue
		}
		words := append([]string{"list", kind}, append(strings.Fields(w.table()), o.ID.Name)...)
		if listed := w.quietly(program, "", words...); !strings.Contains(listed, kind+" "+o.ID.Name+" {") {
			w.Errorf("%s gives\n%s", strings.Join(words, " "), shortened(listed))
		}
	}
}

// stemRune makes # of what hashes and numbers begin with.
func stemRune(r rune) rune {
	if unicode.IsUpper(r) || unicode.IsDigit(r) {
		return '#'
	}
	return r
}

// kindOf is nft's word for a set or a map.
func kindOf(o dataplane.Object) string {
	text, err := nftables.Text(service.IPv4, []dataplane.Object{o})
	if err == nil && strings.Contains(text, "\tmap ") {
		return "map"
	}
	return "set"
}

// checkJSON counts the rules and elements that are listed.
func (w *world) checkJSON(program string, objects []dataplane.Object) {
	w.Helper()
	type named struct {
		Name, Chain string
		Elem        []json.RawMessage
	}
	var listing struct{ Nftables []map[string]named }
	if err := json.Unmarshal([]byte(w.quietly(program, "", "-j", "list", "ruleset")), &listing); err != nil {
		w.Fatal(err)
	}
	got, want := map[string]int{}, map[string]int{}
	for _, item := range listing.Nftables {
		for kind, body := range item {
			switch kind {
			case "set", "map":
				got["@"+body.Name] = len(body.Elem)
			case "chain":
				got[body.Name]++
			}
		}
	}
	for _, o := range objects {
		switch o.ID.Container {
		case "chain":
			want[o.ID.Name]++
		case "set":
			want["@"+o.ID.Name] += 0
		case "table":
		default:
			want[o.ID.Container]++
		}
	}
	for name, count := range want {
		if got[name] != count {
			w.Errorf("%s: %d listed, want %d", name, got[name], count)
		}
	}
	if len(got) != len(want) {
		w.Errorf("%d sets, maps and chains listed, want %d", len(got), len(want))
	}
}
