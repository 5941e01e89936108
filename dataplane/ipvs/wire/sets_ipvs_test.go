// SPDX-License-Identifier: Apache-2.0

//go:build ipvs

package wire

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	library "github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/internal/netlink"
	"github.com/sluice-proxy/sluice/test/netnstest"
	"github.com/sluice-proxy/sluice/test/testenv"
)

// setWorld is a namespace with a socket in it.
type setWorld struct {
	*testing.T
	*Sets
	namespace *netns.Namespace
}

func newSetWorld(t *testing.T) *setWorld {
	t.Helper()
	namespace, err := netns.New(t.Name())
	if err != nil {
		t.Fatal(err)
	}
	w := &setWorld{T: t, namespace: namespace}
	err = namespace.Do(func() error {
		w.Sets, err = OpenSets()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(w.Sets.Close(), namespace.Close()); err != nil {
			t.Error(err)
		}
	})
	return w
}

// run runs a program in the namespace and returns what it prints.
func (w *setWorld) run(stdin string, command ...string) string {
	w.Helper()
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdin = strings.NewReader(stdin)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := netnstest.Output(w.namespace, cmd)
	if err != nil {
		w.Fatalf("%s: %v\n%s", strings.Join(command, " "), err, stderr.String())
	}
	return string(out)
}

// saved returns the entries of a set as ipset(8) prints them, sorted.
func (w *setWorld) saved(set string) []string {
	w.Helper()
	var entries []string
	for line := range strings.Lines(w.run("", "ipset", "save", set)) {
		if entry, found := strings.CutPrefix(line, "add "+set+" "); found {
			entries = append(entries, strings.TrimSpace(entry))
		}
	}
	slices.Sort(entries)
	return entries
}

// allDone fails the test when one of the results is an error.
func (w *setWorld) allDone(results []error) {
	w.Helper()
	if err := errors.Join(results...); err != nil {
		w.Fatal(err)
	}
}

func (w *setWorld) get(set string) Set {
	w.Helper()
	sets, err := w.List(w.Context(), func(name string) bool { return name == set })
	if err != nil || len(sets) != 1 {
		w.Fatalf("%d sets are named %s, %v", len(sets), set, err)
	}
	return sets[0]
}

// revision returns that of a set's type, by the library.
func (w *setWorld) revision(set string) uint8 {
	w.Helper()
	s, err := w.handle.IpsetList(set)
	if err != nil {
		w.Fatal(err)
	}
	return s.Revision
}

func texts(entries []Entry) []string {
	var all []string
	for _, e := range entries {
		all = append(all, e.String())
	}
	slices.Sort(all)
	return all
}

func changes(set string, entries []Entry) []EntryChange {
	var all []EntryChange
	for _, e := range entries {
		all = append(all, EntryChange{set, e})
	}
	return all
}

// randomEntries are different ones, also for a kernel that leaves out host bits.
func randomEntries(kind SetSpec, count int) []Entry {
	r := rand.New(rand.NewPCG(5, uint64(count)))
	seen := map[Entry]bool{}
	var all []Entry
	for len(all) < count {
		if e := randomEntry(r, kind.Type, kind.Family); !seen[e] {
			seen[e] = true
			all = append(all, e)
		}
	}
	return all
}

// TestSets_EveryType: ipset(8) prints our entries as our text, and we read the entries that it writes. Additions and
// deletions can be repeated.
func TestSets_EveryType(t *testing.T) {
	w := newSetWorld(t)
	for i, kind := range everyKind {
		spec := kind
		spec.Name, spec.MaxElem = fmt.Sprintf("SET-%d", i), 1<<20
		w.allDone(w.Create(t.Context(), []SetSpec{spec, spec}))
		entries := randomEntries(kind, 60) // the tool is slow in an emulated machine
		for range 2 {
			w.allDone(w.Add(t.Context(), changes(spec.Name, entries)))
		}
		if got := w.saved(spec.Name); !slices.Equal(got, texts(entries)) {
			t.Errorf("%s: ipset prints %d entries, we wrote %d; first %.200q, want %.200q", kind, len(got), len(entries), got, texts(entries))
		}
		for range 2 {
			w.allDone(w.Delete(t.Context(), changes(spec.Name, entries[:40])))
		}
		// The other way round: ipset(8) writes what it printed, elsewhere.
		var restore strings.Builder
		fmt.Fprintf(&restore, "create TOOL %s", kind.Type)
		if kind.Type == BitmapPort {
			restore.WriteString(" range 0-65535\n")
		} else {
			fmt.Fprintf(&restore, " family %s hashsize 1024 maxelem 1048576\n", kind.Family)
		}
		for _, e := range entries[40:] {
			fmt.Fprintf(&restore, "add TOOL %s\n", e)
		}
		w.run(restore.String(), "ipset", "restore")
		ours, tools := w.get(spec.Name), w.get("TOOL")
		for _, s := range []Set{ours, tools} {
			if !slices.Equal(texts(s.Entries), texts(entries[40:])) || s.Count != 20 {
				t.Errorf("%s: %s has %d entries, counts %d", kind, s.Name, len(s.Entries), s.Count)
			}
			if s.Type != kind.Type || s.Family != kind.Family {
				t.Errorf("%s: header %+v", kind, s.SetSpec)
			}
		}
		if kind.Type != BitmapPort && (ours.MaxElem != 1<<20 || ours.Capacity() != 1<<20) || kind.Type == BitmapPort && ours.Capacity() != 1<<16 {
			t.Errorf("%s: capacity %d", kind, ours.Capacity())
		}
		w.allDone(w.Destroy(t.Context(), []string{"TOOL"}))
	}
}

// TestSets_LibraryCannotWritePorts: the kernel rejects the library's entries of bitmap:port, because they have a
// protocol, so this package needs an encoder even where there are few entries.
func TestSets_LibraryCannotWritePorts(t *testing.T) {
	w := newSetWorld(t)
	w.allDone(w.Create(t.Context(), []SetSpec{{Name: "P", Type: BitmapPort}}))
	port := uint16(80)
	err := w.handle.IpsetAdd("P", &library.IPSetEntry{Port: &port})
	if rejected, ok := errors.AsType[nl.IPSetError](err); !ok || rejected != nl.IPSET_ERR_PROTOCOL {
		t.Errorf("got %v: can the library write these entries now?", err)
	}
}

// TestSets_SameAsToolSet: for the kernel, our sets and ipset's are of one kind although their revisions differ, so
// either can repeat the other's creation.
func TestSets_SameAsToolSet(t *testing.T) {
	w := newSetWorld(t)
	spec := SetSpec{Name: "A", Type: HashIPPort, Family: Inet, MaxElem: 65536}
	w.run("", "ipset", "create", "A", "hash:ip,port", "maxelem", "65536")
	w.allDone(w.Create(t.Context(), []SetSpec{spec}))
	spec.Name = "B"
	w.allDone(w.Create(t.Context(), []SetSpec{spec}))
	w.run("", "ipset", "create", "B", "hash:ip,port", "-exist")
	if ours, tools := w.revision("B"), w.revision("A"); ours != 1 || tools < ours {
		t.Errorf("revisions: ours %d, the tool's %d", ours, tools)
	}
	spec.MaxElem = 1 << 20
	if err := w.Create(t.Context(), []SetSpec{spec})[0]; !errors.Is(err, ErrDifferent) || Unknown(err) {
		t.Errorf("another maximum: %v", err)
	}
	other := SetSpec{Name: "A", Type: HashIPPort, Family: Inet6, MaxElem: 65536}
	if err := w.Create(t.Context(), []SetSpec{other})[0]; !errors.Is(err, ErrDifferent) {
		t.Errorf("another family: %v", err)
	}
}

// TestSets_ResultPerEntry: each entry has its own result. Rejected entries, in one set or several, do not affect the
// others.
func TestSets_ResultPerEntry(t *testing.T) {
	w := newSetWorld(t)
	w.allDone(w.Create(t.Context(), []SetSpec{
		{Name: "A", Type: HashIPPort, Family: Inet}, {Name: "B", Type: HashIPPort, Family: Inet6}, {Name: "P", Type: BitmapPort},
	}))
	good, bad := func(i int) Entry { return Entry{Addr: addr("10.0.0.1"), Protocol: TCP, Port: uint16(i)} }, Entry{Addr: addr("fd00::1"), Protocol: TCP, Port: 80}
	var all []EntryChange
	rejectedAt := map[int]bool{}
	for i := range 1000 {
		switch {
		case i == 10 || i == 11 || i == 500 || i == 999:
			rejectedAt[len(all)] = true
			all = append(all, EntryChange{"A", bad})
		case i%100 == 50:
			rejectedAt[len(all)] = true
			all = append(all, EntryChange{"GONE", good(i)})
		}
		all = append(all, EntryChange{"A", good(i)}, EntryChange{"B", Entry{Addr: addr("fd00::1"), Protocol: SCTP, Port: uint16(i)}}, EntryChange{"P", Entry{Port: uint16(i)}})
	}
	for i, err := range w.Add(t.Context(), all) {
		if (err != nil) != rejectedAt[i] || Unknown(err) {
			t.Errorf("add %s to %s: %v", all[i].Entry, all[i].Set, err)
		}
		if missing := all[i].Set == "GONE"; err != nil && errors.Is(err, ErrNoSet) != missing {
			t.Errorf("add %s to %s: %v", all[i].Entry, all[i].Set, err)
		}
	}
	for _, name := range []string{"A", "B", "P"} {
		if s := w.get(name); len(s.Entries) != 1000 || s.Count != 1000 {
			t.Errorf("%s: %d entries", name, len(s.Entries))
		}
	}
	for i, err := range w.Delete(t.Context(), all) {
		if (err != nil) != rejectedAt[i] {
			t.Errorf("delete %s from %s: %v", all[i].Entry, all[i].Set, err)
		}
	}
	for _, name := range []string{"A", "B", "P"} {
		if s := w.get(name); s.Count != 0 || s.Entries != nil {
			t.Errorf("%s: %d entries are left", name, s.Count)
		}
	}
}

// TestSets_FullSet: a full set accepts as many entries as fit, reports the others, and accepts existing entries again.
func TestSets_FullSet(t *testing.T) {
	w := newSetWorld(t)
	kind := SetSpec{Name: "A", Type: HashIPPortNet, Family: Inet, MaxElem: 700}
	w.allDone(w.Create(t.Context(), []SetSpec{kind}))
	entries := randomEntries(kind, 1100)
	results := w.Add(t.Context(), changes("A", entries))
	held := map[Entry]bool{}
	s := w.get("A")
	for _, e := range s.Entries {
		held[e] = true
	}
	if len(held) != 700 || s.Count != 700 {
		t.Errorf("%d entries", len(held))
	}
	for i, err := range results {
		if (err == nil) != held[entries[i]] || err != nil && !errors.Is(err, ErrFull) {
			t.Fatalf("%s: held %t, %v", entries[i], held[entries[i]], err)
		}
	}
	for i, err := range w.Add(t.Context(), changes("A", entries)) {
		if (err == nil) != held[entries[i]] {
			t.Fatalf("again %s: held %t, %v", entries[i], held[entries[i]], err)
		}
	}
}

// TestSets_AskedByRules: an iptables rule matches our entries, counts as a reference, and prevents the deletion of its
// set.
func TestSets_AskedByRules(t *testing.T) {
	w := newSetWorld(t)
	spec := SetSpec{Name: "KUBE-CLUSTER-IP", Type: HashIPPort, Family: Inet, MaxElem: 1 << 20}
	w.allDone(w.Create(t.Context(), []SetSpec{spec}))
	w.allDone(w.Add(t.Context(), []EntryChange{{spec.Name, Entry{Addr: addr("127.0.0.9"), Protocol: TCP, Port: 80}}}))
	rule := []string{"OUTPUT", "-m", "set", "--match-set", spec.Name, "dst,dst", "-j", "REJECT"}
	w.run("", append([]string{"iptables", "-w", "-A"}, rule...)...)
	reachable := func(port string) error {
		ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
		defer cancel()
		conn, err := netnstest.DialFrom(ctx, w.namespace, "tcp", netip.AddrPort{}, "127.0.0.9:"+port)
		if err == nil {
			_ = conn.Close()
		}
		return err
	}
	listening, err := w.namespace.Listen("tcp", "127.0.0.9:80")
	if err != nil {
		t.Fatal(err)
	}
	defer listening.Close() // the test is over
	if err := reachable("80"); err == nil {
		t.Error("the rule does not match the entry")
	}
	if err := w.Destroy(t.Context(), []string{spec.Name})[0]; !errors.Is(err, ErrInUse) {
		t.Errorf("destroyed under a rule: %v", err)
	}
	w.run("", append([]string{"iptables", "-w", "-D"}, rule...)...)
	testenv.Eventually(t, "the rule lets go of the set", func() bool {
		err = w.Destroy(t.Context(), []string{spec.Name})[0]
		return !errors.Is(err, ErrInUse)
	})
	if err != nil {
		t.Error(err)
	}
}

// TestSets_NamesComeAndGo: created sets are listed and destroyed ones are not, and operations on missing sets fail.
func TestSets_NamesComeAndGo(t *testing.T) {
	w := newSetWorld(t)
	if sets, err := w.List(t.Context(), nil); err != nil || len(sets) != 0 {
		t.Errorf("in a new namespace: %v, %v", sets, err)
	}
	for name, results := range map[string]error{
		"add":    w.Add(t.Context(), []EntryChange{{"A", Entry{Port: 1}}})[0],
		"delete": w.Delete(t.Context(), []EntryChange{{"A", Entry{Port: 1}}})[0],
	} {
		if results == nil {
			t.Errorf("%s of nothing succeeds", name)
		}
	}
	w.allDone(w.Destroy(t.Context(), []string{"A"}))
	w.allDone(w.Create(t.Context(), []SetSpec{{Name: "A", Type: BitmapPort}, {Name: "B", Type: BitmapPort}, {Name: "X", Type: HashIP, Family: Inet6}}))
	w.allDone(w.Add(t.Context(), []EntryChange{{"A", Entry{Port: 1}}, {"B", Entry{Port: 2}}, {"B", Entry{Port: 3}}}))
	sets, err := w.List(t.Context(), func(name string) bool { return name != "X" })
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, s := range sets {
		got[s.Name] = fmt.Sprint(s.Count, texts(s.Entries))
	}
	if want := map[string]string{"A": "1 [1]", "B": "2 [2 3]"}; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v, want %v", got, want)
	}
	w.allDone(w.Destroy(t.Context(), []string{"B", "A", "X", "X"}))
	if got := w.run("", "ipset", "list", "-name"); got != "" {
		t.Errorf("left: %s", got)
	}
}

// TestSets_ForeignSets: our sets are read although another program gave them extensions, and sets of unknown types do
// no harm.
func TestSets_ForeignSets(t *testing.T) {
	w := newSetWorld(t)
	w.run(`create A hash:ip,port comment counters timeout 100 skbinfo
add A 10.0.0.1,tcp:80 comment "a word" packets 3
add A 10.0.0.1,icmp:echo-request
create N hash:ip,port,net
add N 10.0.0.1,tcp:80,10.0.0.0/8 nomatch
create L list:set
add L A
create X hash:net
add X 10.0.0.0/8
`, "ipset", "restore")
	sets, err := w.List(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, s := range sets {
		got[s.Name] = fmt.Sprint(s.Type, " ", texts(s.Entries))
	}
	want := map[string]string{
		"A": "hash:ip,port [10.0.0.1,1:2048 10.0.0.1,tcp:80]", "N": "hash:ip,port,net [10.0.0.1,tcp:80,10.0.0.0/8]",
		"L": "list:set []", "X": "hash:net []",
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", got, want)
	}
	a := w.get("A")
	w.allDone(w.Delete(t.Context(), changes("A", a.Entries)))
	if left := w.saved("A"); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

// TestSets_ManyEntries: a large set, which is listed in several messages, is read completely.
func TestSets_ManyEntries(t *testing.T) {
	w := newSetWorld(t)
	kind := SetSpec{Name: "A", Type: HashIPPortIP, Family: Inet6, MaxElem: 1 << 20}
	w.allDone(w.Create(t.Context(), []SetSpec{kind}))
	entries := randomEntries(kind, 20000)
	start := time.Now()
	w.allDone(w.Add(t.Context(), changes("A", entries)))
	added := time.Now()
	s := w.get("A")
	t.Logf("%d entries: added in %v, listed in %v", len(entries), added.Sub(start), time.Since(added))
	if !slices.Equal(texts(s.Entries), texts(entries)) || s.Count != 20000 {
		t.Errorf("%d entries are listed, %d counted", len(s.Entries), s.Count)
	}
}

// TestSets_LostAnswers: if the receive buffer is too small, entries whose answers were lost are sent again, and those
// without an answer are unknown. Successful changes remain.
func TestSets_LostAnswers(t *testing.T) {
	w := newSetWorld(t)
	kind := SetSpec{Name: "A", Type: HashIPPort, Family: Inet, MaxElem: 1}
	w.allDone(w.Create(t.Context(), []SetSpec{kind}))
	w.allDone(w.Add(t.Context(), changes("A", []Entry{{Addr: addr("10.9.9.9"), Protocol: UDP, Port: 9}})))
	err := w.namespace.Do(func() error {
		socket, err := netlink.Open(netlink.Config{Protocol: unix.NETLINK_NETFILTER, SendBytes: 1 << 20, ReceiveBytes: 1})
		if err == nil {
			err = w.socket.Close()
			w.socket = socket
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	unknown := 0
	for i, err := range w.Add(t.Context(), changes("A", randomEntries(kind, 3000))) {
		switch {
		case Unknown(err):
			unknown++
		case !errors.Is(err, ErrFull):
			t.Fatalf("entry %d: %v", i, err)
		}
	}
	if unknown == 0 {
		t.Error("no answer was lost: the test proves nothing")
	}
	if got := w.saved("A"); !slices.Equal(got, []string{"10.9.9.9,udp:9"}) {
		t.Errorf("%v", got)
	}
}

// TestSets_ImpossibleRequests: unsupported types, names that are too long and an ended context are errors.
func TestSets_ImpossibleRequests(t *testing.T) {
	w := newSetWorld(t)
	results := w.Create(t.Context(), []SetSpec{
		{Name: "A", Type: "hash:nonsense", Family: Inet},
		{Name: "B", Type: HashIP, Family: Inet},
		{Name: strings.Repeat("x", 32), Type: HashIP, Family: Inet},
		{Name: strings.Repeat("x", 31), Type: HashIP, Family: Inet},
	})
	if !errors.Is(results[0], ErrUnsupported) || results[1] != nil || results[2] == nil || results[3] != nil {
		t.Errorf("results %v", results)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, err := range append(w.Add(ctx, changes("B", []Entry{{Addr: addr("10.0.0.1")}})), w.Create(ctx, []SetSpec{{Name: "C", Type: HashIP, Family: Inet}})...) {
		if !errors.Is(err, context.Canceled) || Unknown(err) {
			t.Errorf("after the end of the context: %v", err)
		}
	}
	if _, err := w.List(ctx, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end of the context: %v", err)
	}
	if s := w.get("B"); s.Count != 0 {
		t.Error("an entry came although the context had ended")
	}
}
