// SPDX-License-Identifier: Apache-2.0

//go:build ipvs

package kernel

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/ipvs/render"
	"github.com/sluice-proxy/sluice/dataplane/ipvs/wire"
	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/netnstest"
	"github.com/sluice-proxy/sluice/test/rendertest"
)

// TestKernelText_PrintedAsRendered: the tools print all rendered rules byte for byte, in both variants and families.
func TestKernelText_PrintedAsRendered(t *testing.T) {
	for _, family := range service.Families {
		for _, variant := range []string{"legacy", "nft"} {
			for _, c := range rendertest.IPVS {
				if !strings.HasPrefix(c.Name, "scaffold") {
					continue
				}
				t.Run(fmt.Sprintf("%s/%s/%s", family, variant, c.Name), func(t *testing.T) {
					k := newTestNode(t, family, variant)
					objects := rendertest.RenderIPVS(c, family)
					k.load(objects)
					if got, want := k.rules(), rulesOf(objects); !maps.Equal(got, want) {
						t.Errorf("printed:\n%s\nrendered:\n%s", rulesText(got), rulesText(want))
					}
				})
			}
		}
	}
}

// TestKernelText_PrintedEntries: ipset prints all rendered sets and entries byte for byte.
func TestKernelText_PrintedEntries(t *testing.T) {
	for _, family := range service.Families {
		t.Run(family.String(), func(t *testing.T) {
			k := newTestNode(t, family, "nft")
			var objects []dataplane.Object
			for _, c := range rendertest.IPVS {
				objects = append(objects, rendertest.RenderIPVS(c, family)...)
			}
			input := setInput(objects)
			k.run(input, "ipset", "restore", "-exist")
			var wanted, printed []string
			for line := range strings.Lines(input) {
				wanted = append(wanted, entryHead(line))
			}
			for line := range strings.Lines(k.run("", "ipset", "save")) {
				printed = append(printed, entryHead(line))
			}
			slices.Sort(wanted)
			slices.Sort(printed)
			if !slices.Equal(slices.Compact(wanted), printed) {
				t.Errorf("rendered:\n%s\nprinted:\n%s", strings.Join(wanted, "\n"), strings.Join(printed, "\n"))
			}
		})
	}
}

// entryHead is what a line of ipset says of a set or an entry, without the options of
// the set.
func entryHead(line string) string {
	words := strings.Fields(line)
	return strings.Join(words[:3], " ")
}

// tables are those with rules of ours.
var tables = []string{"mangle", "nat", "filter"}

// testNode is a fresh namespace.
type testNode struct {
	*testing.T
	*netns.Namespace
	family  service.Family
	variant string
}

func newTestNode(t *testing.T, family service.Family, variant string) *testNode {
	t.Helper()
	namespace := netnstest.New(t, "node")
	return &testNode{T: t, Namespace: namespace, family: family, variant: variant}
}

// run returns what a command in the namespace prints.
func (k *testNode) run(input, name string, args ...string) string {
	k.Helper()
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), "XTABLES_LOCKFILE="+filepath.Join(k.TempDir(), "lock"))
	cmd.Stdin = strings.NewReader(input)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := netnstest.Output(k, cmd)
	if err != nil {
		k.Fatalf("%s %v: %v: %s\n%s", name, args, err, stderr.String(), input)
	}
	return string(out)
}

func (k *testNode) tables(verb string) string {
	name := "iptables"
	if k.family == service.IPv6 {
		name = "ip6tables"
	}
	return name + "-" + k.variant + "-" + verb
}

// load makes what objects stand for, with the tools that people use.
func (k *testNode) load(objects []dataplane.Object) {
	k.Helper()
	k.run(setInput(objects), "ipset", "restore", "-exist")
	k.run(ruleInput(objects), k.tables("restore"))
	if addresses := addressInput(objects); addresses != "" {
		k.run(addresses, "ip", "-batch", "-")
	}
	if servers := serverInput(k.T, objects); servers != "" {
		k.run(servers, "ipvsadm", "--restore")
	}
}

// rules returns the rules that the tools print, by table and chain.
func (k *testNode) rules() map[string]string {
	k.Helper()
	found := map[string]string{}
	for _, table := range tables {
		for line := range strings.Lines(k.run("", k.tables("save"), "-t", table)) {
			line = strings.TrimSuffix(line, "\n")
			if name, isChain := strings.CutPrefix(line, ":KUBE"); isChain {
				found[table+" KUBE"+strings.Fields(name)[0]] += ""
			}
			if rule, isRule := strings.CutPrefix(line, "-A "); isRule {
				chain, rule, _ := strings.Cut(rule, " ")
				found[table+" "+chain] += rule + "\n"
			}
		}
	}
	return found
}

// rulesOf returns the rules that objects stand for, by table and chain.
func rulesOf(objects []dataplane.Object) map[string]string {
	rules := map[string]string{}
	for _, o := range objects {
		table, chain, isHook := strings.Cut(o.ID.Container, "/")
		switch {
		case !slices.Contains(tables, table):
		case isHook:
			// Each is inserted at the top.
			rules[table+" "+chain] = o.Body + "\n" + rules[table+" "+chain]
		case o.Body == "":
			rules[table+" "+o.ID.Name] = ""
		default:
			rules[table+" "+o.ID.Name] = o.Body + "\n"
		}
	}
	return rules
}

func rulesText(rules map[string]string) string {
	var b strings.Builder
	for _, chain := range slices.Sorted(maps.Keys(rules)) {
		fmt.Fprintf(&b, "%s\n%s", chain, rules[chain])
	}
	return b.String()
}

func ruleInput(objects []dataplane.Object) string {
	all := rulesOf(objects)
	var b strings.Builder
	for _, table := range tables {
		fmt.Fprintf(&b, "*%s\n", table)
		for _, place := range slices.Sorted(maps.Keys(all)) {
			if chain, in := strings.CutPrefix(place, table+" KUBE"); in {
				fmt.Fprintf(&b, ":KUBE%s - [0:0]\n", chain)
			}
		}
		for _, place := range slices.Sorted(maps.Keys(all)) {
			if chain, in := strings.CutPrefix(place, table+" "); in {
				for rule := range strings.Lines(all[place]) {
					fmt.Fprintf(&b, "-A %s %s", chain, rule)
				}
			}
		}
		b.WriteString("COMMIT\n")
	}
	return b.String()
}

func setInput(objects []dataplane.Object) string {
	var sets, entries strings.Builder
	for _, o := range objects {
		if set, isEntry := render.EntrySet(o.ID); isEntry {
			fmt.Fprintf(&entries, "add %s %s\n", set, o.ID.Name)
		} else if s, err := render.ParseSet(&o); err == nil {
			fmt.Fprintf(&sets, "create %s %s", s.Name, s.Type)
			if s.Type == wire.BitmapPort {
				sets.WriteString(" range 0-65535\n")
			} else {
				fmt.Fprintf(&sets, " family %s maxelem %d\n", s.Family, s.MaxElem)
			}
		}
	}
	return sets.String() + entries.String()
}

func addressInput(objects []dataplane.Object) string {
	var device, addresses strings.Builder
	for _, o := range objects {
		if o.ID == render.DeviceID {
			fmt.Fprintf(&device, "link add %s type dummy\n", render.Device)
		} else if addr, err := render.ParseAddress(o.ID); err == nil {
			fmt.Fprintf(&addresses, "address replace %s dev %s\n", addr, render.Device)
		}
	}
	return device.String() + addresses.String()
}

func serverInput(t *testing.T, objects []dataplane.Object) string {
	var b strings.Builder
	options := map[service.Protocol]string{service.TCP: "-t", service.UDP: "-u", service.SCTP: "--sctp-service"}
	for _, o := range objects {
		if o.ID.Container != render.ContainerServer {
			continue
		}
		s, err := render.ParseServer(&o)
		if err != nil {
			t.Fatal(err)
		}
		_, at, _ := strings.Cut(o.ID.Name, " ")
		ports := ""
		if s.Flags&wire.SchedulerFlag2 != 0 {
			ports = " -b flag-2"
		}
		fmt.Fprintf(&b, "-A %s %s -s %s%s\n", options[s.Protocol], at, s.Scheduler, ports)
		for _, r := range s.Reals {
			fmt.Fprintf(&b, "-a %s %s -r %s -m -w %d\n", options[s.Protocol], at, r.Addr, r.Weight)
		}
	}
	return b.String()
}
