package faults

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/iptables"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/release"
)

var recordRelease = flag.String("record-release", "", "write the present rules to testdata/releases/NAME instead of testing")

// TestRecordRelease records the rules of the present commit. The other tests load the rules of
// recorded releases and take them over.
func TestRecordRelease(t *testing.T) {
	for _, mode := range []string{modeNFTables, modeNFT} {
		t.Run(mode, func(t *testing.T) {
			u := newUpgrade(t, mode)
			l := u.start()
			for _, family := range service.Families {
				rules := u.rules(family)
				if *recordRelease == "" {
					for _, s := range liveServices {
						if !strings.Contains(rules, s.key().String()) {
							t.Errorf("a recording would be without %s:\n%s", s.name, rules)
						}
					}
					continue
				}
				path := recording(*recordRelease, mode, family)
				check(t, os.MkdirAll(filepath.Dir(path), 0o755))
				check(t, os.WriteFile(path, []byte(rules), 0o644))
			}
			u.stop(l)
		})
	}
}

// TestRecordedChainsAreOurs: the proxy sweeps every chain of a recorded release that it does not
// want. A chain that is not swept would stay forever, with the chains that it jumps to.
func TestRecordedChainsAreOurs(t *testing.T) {
	chains := 0
	for _, release := range recordings(t) {
		for _, family := range service.Families {
			text, err := os.ReadFile(recording(release, modeLegacy, family))
			check(t, err)
			table := iptables.Table("")
			for line := range strings.Lines(string(text)) {
				if name, ok := strings.CutPrefix(strings.TrimSpace(line), "*"); ok {
					table = iptables.Table(name)
				}
				name, ok := strings.CutPrefix(strings.Fields(line)[0], ":KUBE-")
				if !ok {
					continue
				}
				chains++
				if name = "KUBE-" + name; !iptables.OwnsChain(table, name) && !iptables.Shared(name) {
					t.Errorf("%s: no proxy would sweep %s of table %s", release, name, table)
				}
			}
		}
	}
	if chains < 50 {
		t.Errorf("%d chains only: that proves nothing", chains)
	}
}

// Other releases, derived from a recorded one: changes that a later release may make, or may have
// made before a roll-back.
var (
	otherTables = map[string][]edit{
		"as it was": nil,
		"sets of another size": {
			{`(\t(?:map|set) (?:frontends|nodeports|[a-z-]*endpoints[a-z-]*|hairpins|active-cluster-ips|firewalled) \{\n\t\ttype[^\n]*\n)`, "$1\t\tsize 100000\n"},
			{`size (?:262144|4194304)`, "size 1000"},
		},
		"clients with a timeout of all": {{`flags dynamic,timeout`, "flags dynamic,timeout\n\t\ttimeout 2h"}},
		"another key": {
			{`(\tmap frontends \{\n\t\ttype(?:of \S+ daddr| ipv._addr)) \. (?:meta l4proto|inet_proto)`, "$1"},
			{`(\S+) \. (?:tcp|udp) \. (\d+)( comment "[^"]*")? : goto`, "$1 . $2$3 : goto"},
			{` \. meta l4proto \. th dport vmap @frontends`, " . th dport vmap @frontends"},
		},
		"chains of other names": {
			{`\bcluster-(\d+[a-h])\b`, "old-$1"}, {`\bservices\b`, "dispatch"}, {`\bnat-(prerouting|output|postrouting)\b`, "old-$1"},
			{`\bmasquerading\b`, "old-masquerading"},
		},
		"maps of other names": {
			{`\bfrontends\b`, "fronts"}, {`\bcluster-endpoints-`, "slots-"}, {`\bno-endpoints\b`, "none"}, {`\b(?:picks|targets)-`, "choices-"},
		},
		"other rules, and more of them": {
			{`\tchain cluster-(\S+) \{`, "$0\n\t\tcounter comment \"old\""},
			{`\tchain services \{`, "\tset more { type ipv4_addr; size 100; }\n$0\n\t\tmeta mark 0x77777777 drop"},
			{`\t\t(?:ip6? daddr != \S+ )?fib daddr type local`, "\t\tmeta mark 0x77777776 drop\n$0"},
		},
	}
	otherChains = map[string][]edit{
		"as it was":           nil,
		"hooks of other text": {{`"kubernetes service portals"`, `"service portals"`}, {`"kubernetes postrouting rules"`, `"masquerading"`}},
		"chains of other names": {
			{`KUBE-SERVICES`, "KUBE-SVC-MAIN"}, {`KUBE-SVC-([A-Z2-7]{16})`, "KUBE-SVC-OLD$1"}, {`KUBE-POSTROUTING`, "KUBE-SVC-POST"},
			{`"kubernetes service portals"`, `"service portals"`},
		},
		"a tree of another shape": {
			{`(?m)^-A KUBE-SERVICES `, "-A KUBE-SVC-LEVEL "},
			{`(?m)^:KUBE-SERVICES .*$`, "$0\n:KUBE-SVC-LEVEL - [0:0]"},
			{`(?m)^-A KUBE-POSTROUTING `, "-A KUBE-SERVICES -j KUBE-SVC-LEVEL\n$0"},
		},
		"other rules, and more of them": {
			{`-j MASQUERADE --random-fully`, "-j MASQUERADE"},
			{`(?m)^(-A KUBE-SVC-\S+ .*)-j DNAT`, "${1}-m comment --comment old -j DNAT"},
		},
	}
)

// TestTakingOverAnotherRelease starts the present proxy over the rules of recorded releases and of
// releases derived from them, while clients make and hold connections: none is lost, affinity
// holds, and a Service without endpoints refuses its clients all the time.
func TestTakingOverAnotherRelease(t *testing.T) {
	for _, release := range recordings(t) {
		for _, mode := range upgradeModes {
			for name, edits := range others(mode) {
				t.Run(release+"/"+mode+"/"+name, func(t *testing.T) {
					u := newUpgrade(t, mode)
					for _, family := range service.Families {
						text, err := os.ReadFile(recording(release, mode, family))
						check(t, err)
						u.load(family, edited(t, string(text), edits))
					}
					u.takeOver()
					u.checkSettled()
				})
			}
		}
	}
}

// others are the releases derived from one in a mode.
func others(mode string) map[string][]edit {
	if mode == modeNFTables {
		return otherTables
	}
	return otherChains
}

// takeOver starts the present proxy over the loaded rules.
func (u *upgrade) takeOver() {
	u.Helper()
	for i, everything := range prefixes("0.0.0.0/0", "::/0") {
		// What no rule refuses goes on to a host that is silent, and the kernel tracks it.
		check(u, u.network.node.AddRoute(everything, pair.pod(service.Families[i], 0)))
	}
	tr := startTraffic(u.T, u.network.client)
	tr.awaitAll(u.T, 3)
	var refused *refusals
	if u.mode == modeNFTables { // not every tree of iptables that is loaded here refuses at first
		refused = startRefusals(u.T, u.network)
	}
	l := u.start()
	tr.awaitAll(u.T, 15)
	tr.end(u.T)
	if refused != nil {
		refused.end(u.T)
	}
	tr.checkAffinity(u.T)
	u.stop(l)
}

// TestTakingOverAThousandServices does the same where writing everything takes longer, and several
// transactions. (A set that another release had defined otherwise cost the whole table, and all
// Services were gone for as long as it took to write them: 0.9 s. Chains that all Services of a
// size share were led to new maps before these were filled.)
func TestTakingOverAThousandServices(t *testing.T) {
	const parts = 64 << 10
	for _, one := range []struct {
		mode, name       string
		transactionBytes int
	}{
		{modeNFTables, "sets of another size", 0}, {modeNFTables, "another key", 0},
		{modeNFTables, "sets of another size", parts}, {modeNFTables, "maps of other names", parts},
		{modeNFTables, "chains of other names", parts},
		{modeNFT, "chains of other names", 0}, {modeLegacy, "chains of other names", 0},
	} {
		t.Run(fmt.Sprintf("%s/%s/%d", one.mode, one.name, one.transactionBytes), func(t *testing.T) {
			u := newUpgrade(t, one.mode)
			u.quiet = 1000
			u.stop(u.start())
			for _, family := range service.Families {
				u.load(family, edited(t, u.rules(family), others(one.mode)[one.name]))
			}
			u.transactionBytes = one.transactionBytes
			u.takeOver()
			u.checkSettled()
		})
	}
}

// TestThereAndBack upgrades a node to another release and rolls it back, twice, under the same
// connections: the other release has the same writer, but different names and sizes.
func TestThereAndBack(t *testing.T) {
	u := newUpgrade(t, modeNFTables)
	l := u.start()
	tr := startTraffic(t, u.network.client)
	for range 2 {
		for _, translate := range []func([]dataplane.Object) []dataplane.Object{release.Translated, nil} {
			tr.awaitAll(t, 5)
			u.stop(l)
			u.translate = translate
			began := time.Now()
			l = u.start()
			for _, name := range l.names {
				audit := l.events.audit(t, name, began)
				if audit.Drift.Different == 0 {
					t.Errorf("%s: the other release is no other: %+v", name, audit.Drift)
				}
			}
		}
	}
	tr.awaitAll(t, 5)
	tr.end(t)
	tr.checkAffinity(t)
	u.stop(l)
	u.checkSettled()
}

// checkAffinity fails unless one pod has answered every connection to the Service with affinity.
func (tr *traffic) checkAffinity(t *testing.T) {
	t.Helper()
	for _, family := range service.Families {
		var pods []string
		for i := range sticky.pods() {
			if !tr.lastAnswer(pod{family, sticky.podName(i)}).IsZero() {
				pods = append(pods, sticky.podName(i))
			}
		}
		if len(pods) != 1 {
			t.Errorf("%s: the client with affinity was sent to %v", family, pods)
		}
	}
}

// checkSettled starts another proxy over the rules of the last one. It must find nothing to do.
func (u *upgrade) checkSettled() {
	u.Helper()
	began := time.Now()
	l := u.start()
	for _, name := range l.names {
		audit := l.events.audit(u.T, name, began)
		if audit.Err != nil || audit.Drift.Any() || audit.Drift.Equal == 0 {
			u.Errorf("%s: another proxy finds %+v, %v", name, audit.Drift, audit.Err)
		}
	}
	u.stop(l)
}

// audit waits for an audit of a domain.
func (l *eventLog) audit(t *testing.T, domain string, after time.Time) aggregator.AuditDone {
	t.Helper()
	return l.await(t, "an audit", after, func(e aggregator.Event) bool {
		a, ok := e.(aggregator.AuditDone)
		return ok && a.Domain == domain
	}).event.(aggregator.AuditDone)
}
