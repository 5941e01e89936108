package nftables_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/nftables"
	"github.com/sluice-proxy/sluice/dataplane/nftables/wire"
	"github.com/sluice-proxy/sluice/internal/netlink"
	"github.com/sluice-proxy/sluice/service"
)

// narrowBytes is the room of a socket that takes less than one set.
const narrowBytes = 24 << 10

// attended is a socket that calls a function after each transaction that landed.
type attended struct {
	*wire.Socket
	landed func()
	narrow bool
}

// Commit is for nftables.Socket.
func (s attended) Commit(t *wire.Transaction) ([]*wire.Refusal, error) {
	refusals, err := s.Socket.Commit(t)
	if err == nil && len(refusals) == 0 {
		s.landed()
	}
	return refusals, err
}

// Room is for nftables.Socket.
func (s attended) Room() int {
	if s.narrow {
		return narrowBytes
	}
	return s.Socket.Room()
}

// redefinition is how another release or program defined some of our sets.
type redefinition struct {
	// set matches the names of sets. from is a part of their text, and to replaces it.
	// Without set, the replacement is in the whole text.
	set, from, to string
}

// apply changes the text of a table.
func (r redefinition) apply(t testing.TB, table string) string {
	t.Helper()
	from := regexp.MustCompile(r.from)
	if r.set == "" {
		if !from.MatchString(table) {
			t.Fatalf("%s is not in %s", r.from, table)
		}
		return from.ReplaceAllString(table, r.to)
	}
	blocks := regexp.MustCompile(`(?ms)^\t(set|map) [^\n]*\{$.*?^\t\}$`)
	name := regexp.MustCompile(`^\t(?:set|map) "?` + r.set + `"? \{`)
	altered := 0
	table = blocks.ReplaceAllStringFunc(table, func(block string) string {
		if !name.MatchString(block) {
			return block
		}
		altered++
		if !from.MatchString(block) {
			t.Fatalf("%s is not in %s", r.from, block)
		}
		return from.ReplaceAllString(block, r.to)
	})
	if altered == 0 {
		t.Fatalf("no set %s in %s", r.set, table)
	}
	return table
}

// The definitions of another release, with which the elements fit or do not.
var redefinitions = map[string][]redefinition{
	"another size": {
		{set: "frontends", from: `\t\ttype [^\n]*\n`, to: "$0\t\tsize 100000\n"},
		{set: "cluster-endpoints-.", from: `\t\ttypeof [^\n]*\n`, to: "$0\t\tsize 100000\n"},
	},
	"clients with a smaller size":   {{set: "clients-.*", from: `size \d+`, to: "size 1000"}},
	"clients with a timeout of all": {{set: "clients-.*", from: `flags dynamic,timeout`, to: "flags dynamic,timeout\n\t\ttimeout 2h"}},
	"another flag":                  {{set: "no-endpoints", from: `\t\ttype [^\n]*\n`, to: "$0\t\tsize 65535\n\t\tflags dynamic\n"}},
	"a timeout":                     {{set: "active-cluster-ips", from: `\t\ttype [^\n]*\n`, to: "$0\t\tflags timeout\n"}},
	"everything at once": {
		{set: "(cluster|local|no|nodeport)-[a-z-]*endpoints[a-z-]*", from: `\t\ttype(of)? [^\n]*\n`, to: "$0\t\tsize 100000\n"},
		{set: "(frontends|nodeports|hairpins|firewalled|active-cluster-ips)", from: `\t\ttype(of)? [^\n]*\n`, to: "$0\t\tsize 100000\n"},
		{set: "(clients|slots|targets)-.*", from: `\}$`, to: "\tcomment \"other\"\n\t}"},
		{set: "clients-.*", from: `size \d+`, to: "size 1000"},
	},
}

// stickyView is plain with affinity.
func stickyView(n, endpoints int) *service.View {
	view := plain(n, endpoints, 0)
	view.Ports[service.IPv4][0].AffinitySeconds = 3600
	return view
}

// otherRelease serves Services, and then redefines sets as another release would.
func (w *world) otherRelease(services int, all []redefinition) {
	w.Helper()
	for n := range services {
		w.serve(plain(n, 4, 0))
	}
	for n := services; n < services+3; n++ {
		w.serve(stickyView(n, 3))
	}
	w.commit()
	for _, name := range w.clientsMaps() {
		w.nft(fmt.Sprintf("add element %s %s { 10.9.9.9 timeout 1h expires 30m : 10.0.50.1 }", w.table(), name), "-f", "-")
	}
	table := w.nft("", "list", "table", w.table())
	for _, r := range all {
		table = r.apply(w, table)
	}
	w.nft("delete table "+w.table()+"\n"+table, "-f", "-")
}

// clientsMaps returns the names of the maps of clients.
func (w *world) clientsMaps() []string {
	var names []string
	for _, o := range w.read() {
		if o.ID.Container == "set" && strings.HasPrefix(o.ID.Name, "clients-") {
			names = append(names, o.ID.Name)
		}
	}
	return names
}

// checkClients fails unless every map of clients has the client, with its remaining time.
func (w *world) checkClients(want int) {
	w.Helper()
	names := w.clientsMaps()
	if len(names) != want {
		w.Errorf("%d maps of clients, want %d", len(names), want)
	}
	for _, name := range names {
		listed := w.nft("", "list", "map", w.table(), name)
		found := regexp.MustCompile(`10\.9\.9\.9 timeout 1h expires (\d+)m\S* : 10\.0\.50\.1`).FindStringSubmatch(listed)
		if found == nil || found[1] > "30" || found[1] < "20" {
			w.Errorf("the client is not where it was: %s", listed)
		}
	}
}

// watchServed checks after each transaction of the world's writer that all Services are
// dispatched and have their endpoints, and counts the transactions.
func (w *world) watchServed(services int, config nftables.WriterConfig, narrow bool) (transactions *int) {
	w.Helper()
	transactions = new(int)
	looker := nftables.NewWriter(w.family, nftables.WriterConfig{Inside: w.node.Do})
	w.Cleanup(func() {
		if err := looker.Close(); err != nil {
			w.Error(err)
		}
	})
	config.Open = func() (nftables.Socket, error) {
		socket, err := wire.Open()
		return attended{Socket: socket, narrow: narrow, landed: func() {
			*transactions++
			objects, err := looker.Read(w.Context())
			if err != nil {
				w.Error(err)
			}
			if asked := checkServed(w, objects, services); asked != "frontends" {
				listed := w.nft("", "list", "map", w.table(), asked)
				if n := strings.Count(listed, " : goto "); n < services {
					w.Errorf("%d of %d Services are dispatched by %s", n, services, asked)
				}
			}
		}}, err
	}
	w.restart(config)
	return transactions
}

// checkServed follows the rules: the map of the chain services has all Services, and the
// maps of their class chains have their endpoints.
func checkServed(t testing.TB, objects []dataplane.Object, services int) (asked string) {
	t.Helper()
	bodies, elements := map[string]string{}, map[string]int{}
	for _, o := range objects {
		bodies[o.ID.Container+" "+o.ID.Name] = o.Body
		elements[o.ID.Container]++
	}
	for _, name := range []string{"frontends", "frontends-beside"} {
		if strings.Contains(bodies["chain services"], name+"\x00") {
			asked = name
		}
	}
	if asked == "" {
		t.Errorf("packets are dispatched by no map: %q", bodies["chain services"])
	}
	if asked == "frontends" && elements["@frontends"] < services {
		t.Errorf("%d of %d Services are dispatched", elements["@frontends"], services)
	}
	for _, shard := range "abcdefgh" {
		name := "cluster-endpoints-" + string(shard)
		for id, body := range bodies {
			if strings.HasPrefix(id, "chain cluster-") && strings.Contains(body, name+"\x00") && elements["@"+name] == 0 {
				t.Errorf("%s asks %s, which is empty", id, name)
			}
		}
	}
	return asked
}

// TestAnotherReleasesDefinitions: sets that another release defined otherwise are exchanged
// while everything is served, clients keep their endpoint for their remaining time, and
// another audit finds nothing to do. (Once the table was deleted, and written again after an
// audit.)
func TestAnotherReleasesDefinitions(t *testing.T) {
	for name, all := range redefinitions {
		w := exchangeAll(t, name, all, false)
		w.checkClients(3)
		w = exchangeAll(t, name+", a small socket", all, true)
		w.checkClients(3)
	}
}

// TestDefinitionsThatNothingFits: the same for sets whose elements or rules do not fit ours.
// The clients in these sets are forgotten.
func TestDefinitionsThatNothingFits(t *testing.T) {
	for name, all := range misfits {
		exchangeAll(t, name, all, false)
		exchangeAll(t, name+", a small socket", all, true)
	}
}

// exchangeAll takes over a table that another release left, and checks what is served after
// each transaction.
func exchangeAll(t *testing.T, name string, all []redefinition, narrow bool) *world {
	t.Helper()
	const services = 200
	w := newWorld(t, service.IPv4, nftables.WriterConfig{})
	w.otherRelease(services, all)
	transactions := w.watchServed(services, nftables.WriterConfig{}, narrow)
	for n := range services {
		w.serve(plain(n, 4, 0))
	}
	for n := services; n < services+3; n++ {
		w.serve(stickyView(n, 3))
	}
	if drift := w.audit(); drift.Different == 0 {
		t.Errorf("%s: no other release's definitions: %+v", name, drift)
	}
	receipt := w.commit()
	if len(receipt.Notes) != 1 {
		t.Errorf("%s: said %q, want one line", name, receipt.Notes)
	}
	if !narrow && *transactions != 1 {
		t.Errorf("%s: %d transactions, want 1", name, *transactions)
	}
	if drift := w.audit(); drift.Any() {
		t.Errorf("%s: afterwards: %+v", name, drift)
	}
	t.Logf("%s: %d transactions: %s", name, *transactions, strings.Join(receipt.Notes, "; "))
	return w
}

// Definitions that some of our elements or rules do not fit.
var misfits = map[string][]redefinition{
	"another key": {
		{set: "frontends", from: ` \. inet_proto|(172\.[0-9.]+) \. tcp`, to: "$1"},
		{from: `ip daddr \. meta l4proto \. th dport vmap @frontends`, to: "ip daddr . th dport vmap @frontends"},
	},
	"a key and elements of another size": {
		{set: "hairpins", from: `\t\ttype [^\n]*\n`, to: "\t\ttype inet_service\n"},
		{from: `ip saddr \. ip daddr \. meta l4proto \. th dport @hairpins`, to: "th dport @hairpins"},
	},
	"ranges": {{set: "no-endpoints", from: `\t\ttype [^\n]*\n`, to: "$0\t\tflags interval\n"}},
	"a map instead of a set": {
		{set: "firewalled", from: `(?s)^.*$`, to: "\tmap firewalled {\n\t\ttype inet_service : verdict\n\t}"},
		{from: `ip daddr \. meta l4proto \. th dport @firewalled [^\n]*`, to: "th dport vmap @firewalled"},
	},
	"rules that only the old definition takes": {
		{set: "active-cluster-ips", from: `\t\ttype [^\n]*\n`, to: "$0\t\tsize 65535\n\t\tflags dynamic,timeout\n"},
		{from: `\tchain cluster-ips-check \{`, to: "$0\n\t\tupdate @active-cluster-ips { ip saddr timeout 1s }"},
	},
}

// TestASetThatReadsBackOtherwise: a definition that the kernel returns in another form is
// exchanged once, which is reported, and left alone from then on.
func TestASetThatReadsBackOtherwise(t *testing.T) {
	w := newWorld(t, service.IPv4, nftables.WriterConfig{})
	objects := w.renderer.Node(&w.facts)
	for i := range objects {
		if objects[i].ID == (dataplane.ID{Container: "set", Name: "hairpins"}) {
			// The reader omits the policy.
			objects[i].Body += string(netlink.AppendUint32(nil, unix.NFTA_SET_POLICY, unix.NFT_SET_POL_MEMORY))
		}
	}
	w.want(service.Node, objects)
	w.commit()
	if drift := w.audit(); drift.Different != 1 {
		t.Fatalf("%+v, want one difference", drift)
	}
	if receipt := w.commit(); len(receipt.Notes) != 2 || !strings.Contains(receipt.Notes[1], "hairpins") {
		t.Errorf("said %q", receipt.Notes)
	}
	for range 3 {
		if drift := w.audit(); drift.Any() {
			t.Errorf("%+v, want it left alone", drift)
		}
		if receipt := w.commit(); receipt.Written.Calls > 0 || len(receipt.Notes) > 0 {
			t.Errorf("written again: %v, %q", receipt, receipt.Notes)
		}
	}
	w.nft("flush chain "+w.table()+" masquerading; delete set "+w.table()+" hairpins; "+
		"add set "+w.table()+" hairpins { type inet_service; }", "-f", "-")
	if drift := w.audit(); drift.Different < 2 {
		t.Errorf("%+v, want a stranger's set to be found", drift)
	}
	w.commit()
	if drift := w.audit(); drift.Any() {
		t.Errorf("after a stranger: %+v", drift)
	}
}
