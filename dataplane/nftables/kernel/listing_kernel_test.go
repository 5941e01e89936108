// SPDX-License-Identifier: Apache-2.0

package kernel_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/nftables/kernel"
	"github.com/sluice-proxy/sluice/dataplane/nftables/render"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/netnstest"
	"github.com/sluice-proxy/sluice/test/testenv"
	"github.com/sluice-proxy/sluice/test/writertest"
)

// releases are the versions of nft that must understand what we load: this machine's, and in make test-all that of
// the next Debian release.
func releases(t *testing.T) map[string]string {
	t.Helper()
	if !testenv.All() {
		return map[string]string{"this release": testenv.NeedsTool(t, "nft", "nftables")}
	}
	var trouble bytes.Buffer
	cmd := exec.Command(filepath.Join("..", "..", "..", "hack", "newer-nft"))
	cmd.Stderr = &trouble
	newer, err := cmd.Output()
	if err != nil {
		t.Fatalf("no newer nft (see hack/newer-nft): %v: %s", err, trouble.String())
	}
	found := map[string]string{"this release": "nft", "newer release": strings.TrimSpace(string(newer))}
	versions := map[string]bool{}
	for name, program := range found {
		printed, err := exec.Command(program, "--version").Output()
		if err != nil {
			t.Fatalf("%s: %v (Debian package nftables)", program, err)
		}
		t.Logf("%s: %s", name, printed)
		versions[string(printed)] = true
	}
	if len(versions) < len(found) {
		t.Fatalf("%s is no other version than this machine's", newer)
	}
	return found
}

// oddity is what nft 1.0.6 says when it prints JSON, of each rule that fills a map; it prints such
// a rule as text.
const oddity = "warning: stmt ops map have no json callback\n"

// quietly runs a version of nft, which must not report anything else.
func (w *world) quietly(program, input string, args ...string) string {
	w.Helper()
	cmd := exec.Command(program, args...)
	cmd.Stdin = strings.NewReader(input)
	var printed, complaints bytes.Buffer
	cmd.Stdout, cmd.Stderr = &printed, &complaints
	err := netnstest.Run(w.node, cmd)
	said := complaints.String()
	if slices.Contains(args, "-j") {
		said = strings.ReplaceAll(said, oddity, "")
	}
	if err != nil || said != "" {
		w.Errorf("%s %s: %v\n%s", filepath.Base(program), strings.Join(args, " "), err, shortened(said))
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

// served is a Service with its endpoints.
type served struct {
	spec  service.Spec
	slice *service.Slice
}

// multitude returns Services with large numbers of everything.
func multitude(f writertest.Fixture) []served {
	var many []netip.Addr
	for i := range 40 {
		many = append(many, plus(f.B, i))
	}
	sticky := apart(f, "clients", 30)
	sticky.AffinitySeconds, sticky.InternalLocal = 10800, true
	return []served{
		ofManyPorts(f), ofManyRanges(f),
		{apart(f, "endpoints", 20), f.Slice(many...)},
		{sticky, f.Slice(append(many[:20:20], f.A)...)},
	}
}

// apart returns a Service with all kinds of frontends, n away from the usual ones.
func apart(f writertest.Fixture, name string, n int) service.Spec {
	spec := f.Exposed()
	spec.Key.Name = name
	spec.ClusterIPs[f.Family] = plus(spec.ClusterIPs[f.Family], n)
	spec.LoadBalancerVIPs[f.Family] = []netip.Addr{plus(f.VIP, n), plus(f.VIP, n+1)}
	spec.ExternalIPs[f.Family] = []netip.Addr{plus(f.ExternalIP, n)}
	spec.Ports[0].NodePort += uint16(n)
	return spec
}

// ofManyPorts has 500 ports of all protocols, with node ports.
func ofManyPorts(f writertest.Fixture) served {
	s := served{apart(f, "ports", 10), f.Slice(f.A, f.B, f.C)}
	s.spec.Ports, s.slice.Ports, s.spec.ExternalLocal = nil, nil, true
	s.spec.LoadBalancerVIPs[f.Family], s.spec.ExternalIPs[f.Family] = nil, nil
	for i := range 500 {
		name, protocol := fmt.Sprintf("p%d", i), []service.Protocol{service.TCP, service.UDP, service.SCTP}[i%3]
		s.spec.Ports = append(s.spec.Ports, service.Port{
			Name: name, Protocol: protocol, Port: uint16(1000 + i), NodePort: uint16(31000 + i),
		})
		s.slice.Ports = append(s.slice.Ports, service.SlicePort{Name: name, Protocol: protocol, Port: uint16(8000 + i)})
	}
	return s
}

// ofManyRanges admits 200 networks of eight sizes.
func ofManyRanges(f writertest.Fixture) served {
	s := served{apart(f, "ranges", 40), f.Slice(f.A, f.B)}
	base := f.Outside
	for i := range 200 {
		network := netip.PrefixFrom(base, base.BitLen()-i%8).Masked()
		s.spec.SourceRanges[f.Family] = append(s.spec.SourceRanges[f.Family], network)
		base = plus(base, 1<<8) // so that no two overlap
	}
	return s
}

// everything writes every kind of object.
func everything(t *testing.T, family service.Family, config kernel.WriterConfig) (*world, []dataplane.Object) {
	t.Helper()
	f := writertest.NewFixture(family)
	w := newWorld(t, family, config)
	w.facts = f.Facts()
	w.facts.NodePorts[family] = service.NodePortAddresses{Addresses: []netip.Addr{f.Node, f.Second}}
	objects := w.serveVariety(f)
	for _, s := range multitude(f) {
		s.slice.Service = s.spec.Key
		view := service.Resolve(s.spec.Key, &s.spec, []*service.Slice{s.slice}, &w.facts)
		rendered := w.renderer.Service(context.Background(), &view, &w.facts)
		objects = append(objects, rendered...)
		w.want(s.spec.Key, slices.Clone(rendered))
	}
	w.commit()
	return w, distinct(objects)
}

// distinct keeps one object of each identity.
func distinct(objects []dataplane.Object) []dataplane.Object {
	slices.SortStableFunc(objects, func(a, b dataplane.Object) int { return a.ID.Compare(b.ID) })
	return slices.CompactFunc(objects, func(a, b dataplane.Object) bool { return a.ID == b.ID })
}

// TestNFT_EveryReleaseListsAndLoads: each release of nft lists everything that the writer writes, as a whole and each
// set, map and chain by its name. nft creates the same table from the text of the objects, from its own listing, and
// from the statements of the transaction.
func TestNFT_EveryReleaseListsAndLoads(t *testing.T) {
	for name, program := range releases(t) {
		for _, family := range service.Families {
			t.Run(name+"/"+family.String(), func(t *testing.T) {
				t.Parallel()
				few := newWorld(t, family, kernel.WriterConfig{})
				parts := few.serveVariety(writertest.NewFixture(family))
				few.commit()
				few.listParts(program, parts)

				var r kernel.Recorder
				w, objects := everything(t, family, recording(&r))
				compare(t, w.read(), objects, "what the writer wrote")
				w.listAll(program)
				w.checkJSON(program, objects)
				w.loadsAgain(program, objects, r.Sent...)
			})
		}
	}
}

// TestNFT_ReleaseOfNodeLists: the node's nft lists the table, so it can also list tables of other programs.
// hack/test-kernels runs this with many releases; 0.9.8 cannot print all of it as JSON.
func TestNFT_ReleaseOfNodeLists(t *testing.T) {
	for _, family := range service.Families {
		t.Run(family.String(), func(t *testing.T) {
			w := newWorld(t, family, kernel.WriterConfig{})
			w.serveVariety(writertest.NewFixture(family))
			w.commit()
			w.listAll("nft")
		})
	}
}

// listAll lists the table as a whole.
func (w *world) listAll(program string) {
	w.Helper()
	family, table, _ := strings.Cut(w.table(), " ")
	whole := w.quietly(program, "", "list", "ruleset")
	if listed := w.quietly(program, "", "list", "table", family, table); listed != whole {
		w.Errorf("the table is listed as\n%s\nand the ruleset as\n%s", shortened(listed), shortened(whole))
	}
	for _, option := range []string{"-nn", "-a", "-s", "-t"} {
		if listed := w.quietly(program, "", option, "list", "ruleset"); !strings.Contains(listed, "chain services {") {
			w.Errorf("%s lists\n%s", option, shortened(listed))
		}
	}
	for _, kind := range []string{"tables", "chains", "sets", "maps"} {
		for _, option := range []string{"-nn", "-j"} {
			if listed := w.quietly(program, "", option, "list", kind, family); !strings.Contains(listed, table) {
				w.Errorf("%s list %s prints\n%s", option, kind, shortened(listed))
			}
		}
	}
}

func (w *world) listParts(program string, objects []dataplane.Object) {
	w.Helper()
	for _, o := range objects {
		kind := o.ID.Container
		switch kind {
		case "chain":
		case "set":
			if _, lines := render.Lines(w.family, &o); strings.Contains(lines[0], " : ") {
				kind = "map"
			}
		default:
			continue
		}
		words := append([]string{"list", kind}, append(strings.Fields(w.table()), o.ID.Name)...)
		if listed := w.quietly(program, "", words...); !strings.Contains(listed, kind+" "+o.ID.Name+" {") {
			w.Errorf("%s prints\n%s", strings.Join(words, " "), shortened(listed))
		}
	}
}

// checkJSON counts the chains, sets, maps and elements that are listed.
func (w *world) checkJSON(program string, objects []dataplane.Object) {
	w.Helper()
	type named struct {
		Name string
		Elem []json.RawMessage
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

// loadsAgain loads the objects from their text, from nft's listing, and from the statements of the transaction that wrote
// them, and compares the tables.
func (w *world) loadsAgain(program string, objects []dataplane.Object, statements ...string) {
	w.Helper()
	text, err := render.Text(w.family, objects)
	check(w, err)
	listed := w.quietly(program, "", "list", "ruleset")
	for _, input := range []string{text, listed, strings.Join(statements, "")} {
		again := newWorld(w, w.family, kernel.WriterConfig{})
		again.quietly(program, input, "-f", "-")
		if got := again.quietly(program, "", "list", "ruleset"); sortedLines(got) != sortedLines(listed) {
			w.Errorf("what was written is listed as\n%s\nwhat was loaded as\n%s", shortened(listed), shortened(got))
		}
		compare(w, again.read(), objects, "what was loaded")
	}
}
