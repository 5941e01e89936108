// SPDX-License-Identifier: Apache-2.0

package backend

import (
	"context"
	"errors"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	iptkernel "github.com/sluice-proxy/sluice/dataplane/iptables/kernel"
	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/internal/host/sysctl"
	"github.com/sluice-proxy/sluice/proxy"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/netnstest"
)

const routeLocalnet = "net.ipv4.conf.all.route_localnet"

// node is a network namespace of a test's own, with an xtables lock of its own.
type node struct {
	*testing.T
	namespace *netns.Namespace
	log       *zap.Logger
	lines     *observer.ObservedLogs
}

func newNode(t *testing.T) *node {
	t.Helper()
	t.Setenv("XTABLES_LOCKFILE", filepath.Join(t.TempDir(), "xtables.lock"))
	namespace := netnstest.New(t, t.Name())
	core, lines := observer.New(zap.DebugLevel)
	return &node{T: t, namespace: namespace, log: zap.New(core), lines: lines}
}

// domains builds the domains on the node.
func (n *node) domains(o IPTablesOptions) (domains []proxy.Domain, err error) {
	o.Log = n.log
	inside := n.namespace.Do(func() error {
		domains, _, err = IPTables(n.Context(), o)
		return nil
	})
	if inside != nil {
		n.Fatal(inside)
	}
	return domains, err
}

// names returns the names of domains, and checks that each is complete.
func (n *node) names(domains []proxy.Domain) (names []string) {
	n.Helper()
	for _, d := range domains {
		if d.Renderer == nil || d.Renderer.Naming() == nil || d.Writer.Write == nil || d.Layout == nil || d.Pace.MaxWriteShare != writeShare {
			n.Errorf("domain %+v is not complete", d)
		}
		names = append(names, d.Name)
	}
	return names
}

// sh runs a shell command on the node.
func (n *node) sh(script string) string {
	n.Helper()
	printed, err := netnstest.Output(n.namespace, exec.Command("sh", "-ec", script))
	if err != nil {
		n.Fatalf("%s: %v", script, err)
	}
	return string(printed)
}

// TestKernelIPTables_BothFamilies: each variant has a domain for both families.
func TestKernelIPTables_BothFamilies(t *testing.T) {
	for _, variant := range []string{"legacy", "nft"} {
		t.Run(variant, func(t *testing.T) {
			n := newNode(t)
			domains, err := n.domains(IPTablesOptions{Variant: variant, MasqueradeBit: 14, LocalhostNodePorts: true})
			if err != nil {
				t.Fatal(err)
			}
			want := []string{"iptables-" + variant + "/IPv4", "iptables-" + variant + "/IPv6"}
			if got := n.names(domains); !slices.Equal(got, want) {
				t.Errorf("got %v, want %v", got, want)
			}
			chosen := n.lines.FilterMessage("iptables variant chosen").All()
			if len(chosen) != 1 || chosen[0].ContextMap()["variant"] != variant || chosen[0].ContextMap()["reason"] != "asked for" {
				t.Errorf("got %v", chosen)
			}
		})
	}
}

// TestKernelIPTables_WithoutIPv6: on a node without IPv6, only IPv4 is served, and a log line gives the reason.
func TestKernelIPTables_WithoutIPv6(t *testing.T) {
	n := newNode(t)
	if err := n.namespace.Sysctl("net.ipv6.conf.all.disable_ipv6", "1"); err != nil {
		t.Fatal(err)
	}
	domains, err := n.domains(IPTablesOptions{Variant: "nft"})
	if err != nil {
		t.Fatal(err)
	}
	if got := n.names(domains); !slices.Equal(got, []string{"iptables-nft/IPv4"}) {
		t.Errorf("got %v, want IPv4 alone", got)
	}
	said := n.lines.FilterMessage("family not served").All()
	if len(said) != 1 || said[0].ContextMap()["family"] != "IPv6" || !strings.Contains(said[0].ContextMap()["error"].(string), "switched off") {
		t.Errorf("got %v, want a line that says why", said)
	}
}

// TestKernelIPTables_RouteLocalnetOnDemand: route_localnet is set only if node ports are to answer on localhost.
func TestKernelIPTables_RouteLocalnetOnDemand(t *testing.T) {
	for name, c := range map[string]struct {
		asked bool
		want  string
	}{"asked": {true, "1"}, "not asked": {false, "0"}} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			if err := n.namespace.Sysctl(routeLocalnet, "0"); err != nil {
				t.Fatal(err)
			}
			if _, err := n.domains(IPTablesOptions{Variant: "nft", LocalhostNodePorts: c.asked}); err != nil {
				t.Fatal(err)
			}
			if got, err := netnstest.ReadSysctl(n.namespace, routeLocalnet); err != nil || got != c.want {
				t.Errorf("%s is %s, %v; want %s", routeLocalnet, got, err, c.want)
			}
		})
	}
}

// TestKernelIPTables_LocalhostProtectedFirst: a proxy and --init-only protect 127.0.0.0/8 from neighbors before
// route_localnet lets them in. The rule is that of the kubelet, which may exist already.
func TestKernelIPTables_LocalhostProtectedFirst(t *testing.T) {
	const rule = `-A KUBE-FIREWALL ! -s 127.0.0.0/8 -d 127.0.0.0/8 -m comment --comment "block incoming localnet connections"` +
		" -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP\n"
	prepare := map[string]func(context.Context, IPTablesOptions) error{
		"a proxy":     func(ctx context.Context, o IPTablesOptions) error { _, _, err := IPTables(ctx, o); return err },
		"--init-only": PrepareIPTables,
	}
	for who, prepare := range prepare {
		for _, variant := range []string{"nft", "legacy"} {
			t.Run(who+"/"+variant, func(t *testing.T) {
				n := newNode(t)
				save := func() string { return n.sh("iptables-" + variant + "-save -t filter") }
				protected := func(when string) {
					t.Helper()
					for _, want := range []string{rule, "-A INPUT -j KUBE-FIREWALL\n", "-A OUTPUT -j KUBE-FIREWALL\n"} {
						if rules := save(); strings.Count(rules, want) != 1 {
							t.Errorf("%s: must be one %q:\n%s", when, want, rules)
						}
					}
				}
				set := func(o IPTablesOptions) (err error) {
					o.Variant, o.Log, o.LocalhostNodePorts = variant, n.log, true
					ok(t, n.namespace.Do(func() error { err = prepare(n.Context(), o); return nil }))
					return err
				}
				// Without the sysctl, the last step fails.
				if err := set(IPTablesOptions{Sysctls: sysctl.Files{Root: t.TempDir()}}); err == nil {
					t.Error("a sysctl that is not there was set")
				}
				protected("before the setting changes")
				for range 2 { // the second time, the rule is there, as it is with a kubelet
					ok(t, n.namespace.Sysctl(routeLocalnet, "0"))
					ok(t, set(IPTablesOptions{}))
					protected("afterwards")
					if got, err := netnstest.ReadSysctl(n.namespace, routeLocalnet); err != nil || got != "1" {
						t.Errorf("route_localnet is %s, %v", got, err)
					}
				}
			})
		}
	}
}

// TestKernelIPTables_RecordsRouteLocalnet: the previous value of route_localnet is recorded, so that a clean-up can
// restore it.
func TestKernelIPTables_RecordsRouteLocalnet(t *testing.T) {
	n := newNode(t)
	files := sysctl.Files{Record: sysctl.NewRecord(t.TempDir(), func(err error) { t.Errorf("warned: %v", err) })}
	if _, err := n.domains(IPTablesOptions{Variant: "nft", LocalhostNodePorts: true, Sysctls: files}); err != nil {
		t.Fatal(err)
	}
	err := n.namespace.Do(func() error {
		done, err := files.Restore()
		if want := (sysctl.Change{Name: routeLocalnet, From: "1", To: "0"}); len(done) != 1 || done[0].Change != want {
			t.Errorf("put back %+v, want %+v", done, want)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := netnstest.ReadSysctl(n.namespace, routeLocalnet); err != nil || got != "0" {
		t.Errorf("%s is %s, %v", routeLocalnet, got, err)
	}
}

// TestKernelIPTables_RejectsWithoutChanges: an unknown variant and missing programs are rejected before anything
// changes.
func TestKernelIPTables_RejectsWithoutChanges(t *testing.T) {
	for name, c := range map[string]struct {
		options IPTablesOptions
		path    string
		want    []string
	}{
		"unknown variant": {
			options: IPTablesOptions{Variant: "old"}, path: "/usr/sbin:/usr/bin:/sbin:/bin",
			want: []string{`"old": must be auto, legacy or nft`},
		},
		"no programs": {
			options: IPTablesOptions{Variant: "auto"}, path: "/nowhere",
			want: []string{"programs of the nft variant are not installed", "programs of the legacy variant are not installed", "Debian package iptables"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			t.Setenv("PATH", c.path)
			c.options.LocalhostNodePorts = true
			domains, err := n.domains(c.options)
			if err == nil || len(domains) > 0 {
				t.Fatalf("got %v, %v; want an error", domains, err)
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q does not say %q", err, want)
				}
			}
			if got, err := netnstest.ReadSysctl(n.namespace, routeLocalnet); err != nil || got != "0" {
				t.Errorf("%s is %s, %v", routeLocalnet, got, err)
			}
		})
	}
}

// TestKernelIPTables_WarnsOtherVariant: rules of a proxy in the other variant cause one warning.
func TestKernelIPTables_WarnsOtherVariant(t *testing.T) {
	n := newNode(t)
	n.sh("iptables-legacy -t nat -N KUBE-SVC-X")
	if _, err := n.domains(IPTablesOptions{Variant: "nft"}); err != nil {
		t.Fatal(err)
	}
	said := n.lines.FilterLevelExact(zap.WarnLevel).FilterFieldKey("rules").All()
	if len(said) != 1 || !strings.Contains(said[0].ContextMap()["rules"].(string), "legacy") {
		t.Errorf("got %v, want one warning", said)
	}
}

// TestKernelIPTables_WarnsOtherFirewall: a firewall in the other variant causes a warning, because Sluice's rules
// cannot accept packets that it drops.
func TestKernelIPTables_WarnsOtherFirewall(t *testing.T) {
	n := newNode(t)
	n.sh("iptables-legacy -P FORWARD DROP; iptables-legacy -A INPUT -s 203.0.113.0/24 -j DROP")
	for variant, want := range map[string]string{
		"nft": "the legacy variant of iptables contains 1 rule and policy DROP in FORWARD of filter", "legacy": "",
	} {
		n.lines.TakeAll()
		if _, err := n.domains(IPTablesOptions{Variant: variant}); err != nil {
			t.Fatal(err)
		}
		said := n.lines.FilterLevelExact(zap.WarnLevel).FilterFieldKey("otherVariant").All()
		if (want == "") != (len(said) == 0) || (len(said) > 0 && said[0].ContextMap()["otherVariant"] != want) {
			t.Errorf("%s: got %v, want %q", variant, said, want)
		}
	}
}

// TestKernelIPTables_WarnsPrivateLock: a private xtables lock causes a warning, unless the options ask for it.
func TestKernelIPTables_WarnsPrivateLock(t *testing.T) {
	for name, private := range map[string]bool{"meant": true, "by mistake": false} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			if _, err := n.domains(IPTablesOptions{Variant: "nft", PrivateLock: private}); err != nil {
				t.Fatal(err)
			}
			said := n.lines.FilterMessageSnippet("xtables lock")
			switch {
			case private && said.Len() != 0:
				t.Errorf("got %v, want silence", said.All())
			case !private && said.FilterField(zap.String("path", iptkernel.LockPath())).Len() != 1:
				t.Errorf("got %v, want one line that names the file", said.All())
			}
		})
	}
}

// cleanUp runs a sweep on the node, and returns what it found by place.
func (n *node) cleanUp() (found map[string]string, err error) {
	found = map[string]string{}
	inside := n.namespace.Do(func() error {
		var left []Leftover
		left, err = (&Sweep{Families: service.Families[:]}).Run(n.Context())
		for _, l := range left {
			found[l.Of] = l.What
		}
		return nil
	})
	if inside != nil {
		n.Fatal(inside)
	}
	return found, err
}

// TestKernelCleanUp_ContinuesAfterFailure: a clean-up continues after a failure, and names the rule that caused it.
func TestKernelCleanUp_ContinuesAfterFailure(t *testing.T) {
	n := newNode(t)
	for _, program := range []string{"iptables-nft", "ip6tables-nft", "iptables-legacy", "ip6tables-legacy"} {
		n.sh(program + " -t nat -N KUBE-SERVICES; " + program + " -t nat -N MINE; " +
			program + " -t nat -A OUTPUT -m comment --comment 'kubernetes service portals' -j KUBE-SERVICES")
	}
	n.sh("iptables-nft -t nat -A MINE -p udp -j KUBE-SERVICES")
	found, err := n.cleanUp()
	if err == nil || !strings.Contains(err.Error(), "iptables-nft/IPv4: ") || !strings.Contains(err.Error(), "in chain MINE") {
		t.Errorf("got %v, want an error that names the rule in the way", err)
	}
	for name, want := range map[string]string{
		"iptables-nft/IPv4": "1 hook, 0 chains", "iptables-nft/IPv6": "1 hook, 1 chain",
		"iptables-legacy/IPv4": "1 hook, 1 chain", "iptables-legacy/IPv6": "1 hook, 1 chain",
	} {
		if found[name] != want {
			t.Errorf("%s: %s, want %s", name, found[name], want)
		}
	}
	n.sh("iptables-nft -t nat -F MINE")
	if found, err = n.cleanUp(); err != nil || found["iptables-nft/IPv4"] != "0 hooks, 1 chain" {
		t.Errorf("the second time: %v, %v", found, err)
	}
	for _, program := range []string{"iptables-nft-save", "ip6tables-nft-save", "iptables-legacy-save", "ip6tables-legacy-save"} {
		if rules := n.sh(program + " -t nat"); strings.Contains(rules, "KUBE-") || !strings.Contains(rules, ":MINE ") {
			t.Errorf("%s prints\n%s", program, rules)
		}
	}
}

// TestKernelIPTables_ContextCanceled: a canceled context ends the preparation.
func TestKernelIPTables_ContextCanceled(t *testing.T) {
	n := newNode(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := n.namespace.Do(func() error {
		_, _, err := IPTables(ctx, IPTablesOptions{Variant: "nft", Log: n.log})
		return err
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
