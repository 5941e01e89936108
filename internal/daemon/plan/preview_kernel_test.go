// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"go.uber.org/zap"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/internal/daemon"
	"github.com/sluice-proxy/sluice/internal/daemon/config"
	"github.com/sluice-proxy/sluice/internal/daemon/feed"
	"github.com/sluice-proxy/sluice/internal/daemon/setup"
	"github.com/sluice-proxy/sluice/internal/terminal"
	"github.com/sluice-proxy/sluice/test/netnstest"
	"github.com/sluice-proxy/sluice/test/testenv"
)

// TestPlan_MatchesStart: from an empty kernel and after changes of all kinds, a start changes exactly the objects that
// the plan names, to what it names. The plan itself changes nothing, and is empty afterwards.
func TestPlan_MatchesStart(t *testing.T) {
	if netnstest.Rerun(t) {
		return
	}
	for _, words := range testenv.Variants(
		[]string{"--proxy-mode=nftables"},
		[]string{"--proxy-mode=iptables", testenv.Settings(t, "iptables: {variant: nft}")},
		[]string{"--proxy-mode=iptables", testenv.Settings(t, "iptables: {variant: legacy}")},
	) {
		t.Run(fmt.Sprint(words[0], len(words)), func(t *testing.T) {
			p := &planned{T: t, words: words, dir: t.TempDir(), state: t.TempDir()}
			p.copyExamples("demo", "web")
			p.step("an empty kernel")
			p.edit("echo.yaml", "10.244.1.13", "10.244.1.77") // an endpoint replaced
			check(t, os.Remove(filepath.Join(p.dir, "dns.yaml")))
			p.edit("shop.yaml", "192.0.2.0/24", "192.0.2.128/25")
			p.step("changed manifests")
			p.edit("node.yaml", "2001:db8::2", "2001:db8::3")
			p.words = append(p.words, "--masquerade-all")
			p.step("changed settings")
			check(t, os.RemoveAll(p.dir))
			check(t, os.Mkdir(p.dir, 0o700))
			p.step("no manifests")
		})
	}
}

// TestPlan_ListsUnserved: a plan lists frontends of too large Services that are left out, and external IPs that are
// ignored.
func TestPlan_ListsUnserved(t *testing.T) {
	if netnstest.Rerun(t) {
		return
	}
	for _, mode := range testenv.Variants("nftables", "iptables") {
		t.Run(mode, func(t *testing.T) {
			p := &planned{T: t, words: []string{"--proxy-mode=" + mode, testenv.Settings(t, "iptables: {variant: nft}")}, dir: t.TempDir(), state: t.TempDir()}
			p.copyExamples("demo")
			check(t, os.WriteFile(filepath.Join(p.dir, "large.yaml"), []byte(largeManifest), 0o600))
			expect := func(when string, fields ...string) {
				t.Helper()
				report, err := p.preview().report(t.Context())
				check(t, err)
				var got []string
				for _, w := range report.Warnings {
					if got = append(got, w.Field); w.Object != "Service ns/large" || w.Field == "spec" && !strings.Contains(w.Problem, "the limit is 50; frontends left out: ") {
						t.Errorf("%s: %v", when, w)
					}
				}
				if slices.Sort(got); !slices.Equal(got, fields) {
					t.Errorf("%s: warnings %+v, want them about %v", when, report.Warnings, fields)
				}
			}
			const external = "spec.externalIPs"
			p.words = append(p.words, testenv.Settings(t, "actors: {objectsMax: 50}"))
			expect("too large for an empty kernel", "spec", external)
			p.step("too large for an empty kernel")
			expect("served in part", "spec", external)
			p.words[len(p.words)-1] = testenv.Settings(t, "actors: {objectsMax: 500}")
			expect("with a higher limit", external)
			p.step("with a higher limit")
			p.words[len(p.words)-1] = testenv.Settings(t, "actors: {objectsMax: 50}")
			expect("served, and too large", "spec", external)
			p.step("a lower limit")
			p.edit("echo.yaml", "10.244.1.13", "10.244.1.77")
			p.step("a change of another Service")
			expect("after a change of another Service", "spec", external)
			check(t, os.RemoveAll(p.dir))
			check(t, os.Mkdir(p.dir, 0o700))
			p.words[len(p.words)-1] = testenv.Settings(t, "actors: {objectsMax: 500}")
			p.step("no manifests")
		})
	}
}

// largeManifest asks for sixty frontends, and for one inside the ServiceCIDR.
var largeManifest = func() string {
	external := make([]string, 60)
	for i := range external {
		external[i] = fmt.Sprintf("198.18.0.%d", i+1)
	}
	return `apiVersion: networking.k8s.io/v1
kind: ServiceCIDR
metadata: {name: kubernetes}
spec: {cidrs: [172.30.0.0/16]}
---
apiVersion: v1
kind: Service
metadata: {name: large, namespace: ns}
spec:
  clusterIP: 172.30.77.1
  clusterIPs: [172.30.77.1]
  ipFamilies: [IPv4]
  externalIPs: [172.30.77.77, ` + strings.Join(external, ", ") + `]
  ports: [{name: http, port: 80}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: large-1, namespace: ns, labels: {kubernetes.io/service-name: large}}
addressType: IPv4
ports: [{name: http, port: 8080}]
endpoints: [{addresses: [10.244.1.33]}]
`
}()

// planned is a directory of manifests, and what a proxy for it is called with.
type planned struct {
	*testing.T
	words      []string
	dir, state string
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (p *planned) copyExamples(names ...string) {
	for _, name := range names {
		check(p.T, os.CopyFS(p.dir, os.DirFS(filepath.Join("..", "..", "..", "examples", name))))
	}
}

func (p *planned) edit(file, old, now string) {
	path := filepath.Join(p.dir, file)
	text, err := os.ReadFile(path)
	check(p.T, err)
	check(p.T, os.WriteFile(path, bytes.ReplaceAll(text, []byte(old), []byte(now)), 0o600))
}

func (p *planned) options(bind func(*pflag.FlagSet) *config.Flags) *setup.Options {
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	o := &setup.Options{Flags: bind(flags)}
	check(p.T, flags.Parse(append([]string{"--hostname-override=demo", testenv.Settings(p.T, "log: {level: error}"), "--sluice-state-dir=" + p.state}, p.words...)))
	check(p.T, o.Load())
	return o
}

// preview returns one for the manifests as they are.
func (p *planned) preview() *preview {
	found, err := newPreview(p.Context(), p.options(config.BindPlan), p.dir, zap.NewNop())
	check(p.T, err)
	p.Cleanup(func() { check(p.T, found.backend.Close()) })
	return found
}

// step plans, starts, and compares.
func (p *planned) step(what string) {
	p.Helper()
	seen := p.preview()
	before, rules := p.read(seen), p.rules()
	report, err := p.preview().report(p.Context()) // a layout serves once
	check(p.T, err)
	var wanted []dataplane.Change
	for i := range seen.backend.Domains {
		changes, _, err := seen.compare(p.Context(), &seen.backend.Domains[i])
		check(p.T, err)
		wanted = append(wanted, changes...)
		p.apply(before[i], changes, seen.backend.Mode.LeavesOut)
	}
	if now := p.rules(); now != rules {
		p.Fatalf("%s: the plan changed rules:\n%s\nto\n%s", what, rules, now)
	}
	if !report.Differs() || len(wanted) == 0 {
		p.Fatalf("%s: the plan is empty", what)
	}
	p.start()
	for i, now := range p.read(p.preview()) {
		for id, object := range now {
			if was := before[i][id]; !dataplane.Same(was, object) && !loose(object) {
				p.Errorf("%s: %v: the start made %v, planned was %v", what, id, object, was)
			}
			delete(before[i], id)
		}
		for id := range before[i] {
			p.Errorf("%s: %v was planned to stay or to come, and is not there", what, id)
		}
	}
	p.Logf("%s: %d changes", what, len(wanted))
}

// loose reports whether an object is a chain of the kubelet, whose rules do not count.
func loose(o *dataplane.Object) bool {
	return o.ID == dataplane.ID{Container: "filter", Name: "KUBE-FIREWALL"}
}

// read returns what the kernel has, by domain.
func (p *planned) read(seen *preview) (all []map[dataplane.ID]*dataplane.Object) {
	for i := range seen.backend.Domains {
		objects, err := seen.backend.Domains[i].Writer.Read(p.Context())
		check(p.T, err)
		found := map[dataplane.ID]*dataplane.Object{}
		for j := range objects {
			found[objects[j].ID] = &objects[j]
		}
		all = append(all, found)
	}
	return all
}

// apply makes changes to what was read.
func (p *planned) apply(objects map[dataplane.ID]*dataplane.Object, changes []dataplane.Change, leavesOut func(*dataplane.Change) bool) {
	for i := range changes {
		c := &changes[i]
		switch {
		case leavesOut != nil && leavesOut(c):
		case c.After == nil:
			delete(objects, c.ID)
		default:
			objects[c.ID] = c.After
		}
	}
}

// start runs a proxy until its rules are applied and the plan is empty. What nobody wants may
// go a moment after the first rules.
func (p *planned) start() {
	o := &daemon.Options{Options: *p.options(config.BindServing)}
	ctx, cancel := context.WithCancel(p.Context())
	defer cancel()
	applied := make(chan struct{})
	o.FirstSync = func(config.Mode) { close(applied) }
	ended := make(chan error, 1)
	go func() { ended <- daemon.Run(ctx, o, feed.Manifests(p.dir)) }()
	select {
	case <-applied:
	case err := <-ended:
		p.Fatalf("the proxy ended: %v", err)
	case <-time.After(testenv.Patience):
		p.Fatal("no rules are applied")
	}
	for began := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		report, err := p.preview().report(p.Context())
		check(p.T, err)
		if !report.Differs() {
			break
		}
		if time.Since(began) > testenv.Patience {
			text := terminal.Page{Wide: true}
			report.Print(&text)
			p.Fatalf("long after the start, the plan is\n%s", &text)
		}
	}
	cancel()
	check(p.T, <-ended)
}

// rules lists everything in the kernel, in all languages.
func (p *planned) rules() string {
	var all []byte
	for _, words := range [][]string{
		{"nft", "list", "ruleset"}, {"iptables-legacy-save"}, {"ip6tables-legacy-save"}, {"sysctl", "-a", "--pattern", `^net\.(ipv4\.(conf|ip_forward|vs)|netfilter)`},
	} {
		text, err := exec.CommandContext(p.Context(), words[0], words[1:]...).Output()
		check(p.T, err)
		lines := slices.DeleteFunc(bytes.Split(text, []byte("\n")), func(line []byte) bool {
			return bytes.HasPrefix(line, []byte("#")) || bytes.Contains(line, []byte("nf_conntrack_count")) // times of day
		})
		all = append(all, bytes.Join(lines, []byte("\n"))...)
	}
	return string(all)
}
