package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"testing"
	"time"
)

func TestTreeHoldsEveryElementOnceWithinBounds(t *testing.T) {
	for _, count := range []int{0, 1, 32, 33, 1000, 10000} {
		for _, leaf := range []int{16, 32, 64} {
			services, _ := generate(count, 0)
			found := map[uint32]int{}
			grow(elements(services), leaf).walk(0, func(n *node, _ int) {
				if len(n.elements) > leaf || len(n.children) > 1<<window {
					t.Errorf("N=%d leaf=%d: node %s/%d has %d elements and %d children", count, leaf, dotted(n.prefix), n.length, len(n.elements), len(n.children))
				}
				for _, e := range n.elements {
					found[e.address]++
					if n.length > 0 && (e.address^n.prefix)>>(32-n.length) != 0 {
						t.Errorf("%s is listed in %s/%d", dotted(e.address), dotted(n.prefix), n.length)
					}
				}
			})
			for _, s := range services {
				if found[s.address] != 1 {
					t.Errorf("N=%d leaf=%d: %s found %d times", count, leaf, dotted(s.address), found[s.address])
				}
			}
		}
	}
}

// An operator who goes back to kube-proxy must not keep chains of ours: its sync writes KUBE-SERVICES and
// KUBE-POSTROUTING anew and removes what carries its prefixes and is not wanted, in one input.
func TestKubeProxySweepRemovesTheTree(t *testing.T) {
	if os.Getuid() != 0 {
		t.Fatal("needs root, or: unshare --user --map-root-user --net")
	}
	for _, variant := range []string{"legacy", "nft"} {
		t.Run(variant, func(t *testing.T) {
			runtime.LockOSThread() // not unlocked: the thread ends with the test
			if err := enter(); err != nil {
				t.Fatal(err)
			}
			b := bench{variant: variant, timeout: time.Minute, lock: filepath.Join(t.TempDir(), "lock")}
			services, _ := generate(200, 3)
			ours := layout{Leaf: 32, Diet: true}.table(services)
			if _, err := b.load(ours.inputs(50)); err != nil {
				t.Fatal(err)
			}
			theirs := layout{}.table(services)
			theirs.jumps = nil // they are there
			wanted := map[string]bool{}
			for _, c := range theirs.chains {
				wanted[c.name] = true
			}
			stale := regexp.MustCompile(`(?m)^:(KUBE-(?:SVC|SVL|SEP|FW|EXT)-\S+)`)
			swept := 0
			for _, found := range stale.FindAllStringSubmatch(save(t, variant), -1) {
				if !wanted[found[1]] {
					theirs.remove(found[1])
					swept++
				}
			}
			if swept == 0 {
				t.Fatal("nothing to sweep")
			}
			if _, err := b.load(theirs.inputs(0)); err != nil {
				t.Fatal(err)
			}
			if left := regexp.MustCompile(`KUBE-SVC-[TH]\b.*`).FindString(save(t, variant)); left != "" {
				t.Errorf("left behind: %s", left)
			}
		})
	}
}

func save(t *testing.T, variant string) string {
	t.Helper()
	out, err := exec.Command("iptables-"+variant+"-save", "-t", "nat").Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}
