// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-proxy/sluice/internal/host/sysctl"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/testenv"
)

// TestKernelExec_PresentAndRandomFully: Present and RandomFully succeed on a supported kernel, and leave no objects.
func TestKernelExec_PresentAndRandomFully(t *testing.T) {
	onKernels(t, func(k *kernelTest) {
		if err := k.tool.Present(k.Context(), false); err != nil {
			k.Error(err)
		}
		before := k.state()
		if ok, err := k.tool.RandomFully(k.Context()); err != nil || !ok {
			k.Errorf("RandomFully = %v, %v", ok, err)
		}
		if after := k.state(); after != before {
			k.Errorf("probing left behind:\n%s", after)
		}
	})
}

func TestKernelDetect(t *testing.T) {
	for _, variant := range [...]Variant{Legacy, NFT} {
		for _, family := range testenv.Variants(service.IPv4, service.IPv6) {
			t.Run(string(variant)+" "+family.String(), func(t *testing.T) {
				inNamespace(t, func() { detectMark(newKernelTest(t, variant, family)) })
			})
		}
	}
}

// detectMark marks one variant in one family, and leaves a Service in the other.
func detectMark(k *kernelTest) {
	other := NFT
	if k.variant == NFT {
		other = Legacy
	}
	k.restore("*mangle\n:KUBE-IPTABLES-HINT - [0:0]\nCOMMIT\n")
	rival := newKernelTest(k.T, other, k.family)
	rival.restore("*nat\n:KUBE-SERVICES - [0:0]\n-A KUBE-SERVICES -j RETURN\n-A OUTPUT -j KUBE-SERVICES\nCOMMIT\n")
	d, err := Detect(k.Context(), Auto, service.Families[:])
	if err != nil || d.Variant != k.variant || len(d.Leftovers) != 1 || !strings.Contains(d.Leftovers[0], string(other)) {
		k.Errorf("Detect = %+v, %v; want %s with leftovers of %s", d, err, k.variant, other)
	}
	d, err = Detect(k.Context(), string(other), service.Families[:])
	if err != nil || d.Variant != other || len(d.Leftovers) != 0 {
		k.Errorf("Detect(%s) = %+v, %v", other, d, err)
	}
}

// TestKernelDetect_FollowsIptablesInPath: if neither variant contains Kubernetes rules, Detect chooses that of the
// iptables in PATH, which the node's firewall uses. Rules of the other variant could not accept what the firewall
// drops.
func TestKernelDetect_FollowsIptablesInPath(t *testing.T) {
	for _, variant := range [...]Variant{Legacy, NFT} {
		t.Run(string(variant), func(t *testing.T) {
			inNamespace(t, func() {
				programs := t.TempDir()
				for _, name := range []string{"iptables", "ip6tables"} {
					for _, suffix := range []string{"", "-restore", "-save"} {
						at, err := exec.LookPath(name + "-" + string(variant) + suffix)
						if err == nil {
							err = os.Symlink(at, filepath.Join(programs, name+suffix))
						}
						if err != nil {
							t.Fatal(err)
						}
					}
				}
				t.Setenv("PATH", programs+":"+os.Getenv("PATH"))
				k := newKernelTest(t, variant, service.IPv4)
				k.run("iptables", "-P", "FORWARD", "DROP")
				d, err := Detect(t.Context(), Auto, service.Families[:1])
				if err != nil || d.Variant != variant || d.Unused != "" {
					t.Errorf("Detect = %+v, %v; want %s, with nothing beside it", d, err, variant)
				}
				other := Legacy
				if variant == Legacy {
					other = NFT
				}
				d, err = Detect(t.Context(), string(other), service.Families[:1])
				if err != nil || d.Variant != other || !strings.Contains(d.Unused, "policy DROP in FORWARD of filter") {
					t.Errorf("Detect(%s) = %+v, %v; want it to name the policy", other, d, err)
				}
			})
		})
	}
}

func TestKernelSysctls(t *testing.T) {
	inNamespace(t, func() {
		s := sysctl.Files{}
		for i, want := range []bool{true, false} {
			if changed, err := EnsureRouteLocalnet(s, func() error { return nil }); err != nil || changed != want {
				t.Errorf("call %d: changed = %v, %v; want %v", i, changed, err, want)
			}
		}
		if value, err := s.Read(RouteLocalnet); err != nil || value != "1" {
			t.Errorf("route_localnet is %q, %v", value, err)
		}
		if liberal, err := TCPBeLiberal(s); err != nil || liberal {
			t.Errorf("a fresh namespace is liberal: %v, %v", liberal, err)
		}
		if _, err := s.Ensure(tcpBeLiberal, "1", ""); err != nil {
			t.Fatal(err)
		}
		if liberal, err := TCPBeLiberal(s); err != nil || !liberal {
			t.Errorf("after setting it: %v, %v", liberal, err)
		}
	})
}
