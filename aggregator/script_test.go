// SPDX-License-Identifier: Apache-2.0

package aggregator

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// TestScripts runs the scripts in testdata/aggregator; testdata/README.md describes their notation.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/aggregator", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, (&script{T: t}).step)
	})
}

// script is one aggregator and its model kernel, under the commands of a file.
type script struct {
	*testing.T
	h         *player
	began     time.Time
	revisions map[string]service.Revision
	// owners has who owns a frontend by the API.
	owners map[service.Frontend]service.Key
	// kernel and status are what was printed last.
	kernel, status string
}

func (s *script) step(t *testing.T, d *datadriven.TestData) string {
	s.T = t
	commands := map[string]func(*datadriven.TestData){
		"new": s.open, "prime": s.prime, "skip": s.skip, "submit": s.submit, "kernel": s.change,
		"wait": s.wait, "owner": s.owner, "audit": s.audit, "may-write": func(*datadriven.TestData) { s.h.step(released(nil)) },
	}
	command := commands[d.Cmd]
	if command == nil {
		d.Fatalf(t, "commands are %v", slices.Sorted(maps.Keys(commands)))
	}
	command(d)
	s.h.run(s.h.now)
	return s.shown()
}

// duration returns an argument; without it, or without a unit, the test ends.
func duration(t *testing.T, d *datadriven.TestData, text string) time.Duration {
	t.Helper()
	took, err := time.ParseDuration(text)
	if err != nil {
		d.Fatalf(t, "%v", err)
	}
	return took
}

// paceOf reads the arguments of new that are about pace.
func (s *script) paceOf(d *datadriven.TestData) (p Pace) {
	for _, a := range d.CmdArgs {
		field := map[string]*time.Duration{"spacing": &p.MinInterval, "deadline": &p.MaxDelay, "audit": &p.Audit,
			"backoff": &p.BackoffMin, "backoff-max": &p.BackoffMax}[a.Key]
		switch {
		case field != nil:
			*field = duration(s.T, d, a.Vals[0])
		case a.Key == "share":
			p.MaxWriteShare, _ = strconv.ParseFloat(a.Vals[0], 64)
		}
	}
	return p
}

// open begins a new story. The input is what the kernel has.
func (s *script) open(d *datadriven.TestData) {
	m := &model{objects: map[dataplane.ID]string{}}
	for _, object := range strings.Fields(d.Input) {
		name, body, _ := strings.Cut(object, "=")
		m.objects[dataplane.ID{Name: name}] = body
	}
	owners := map[service.Frontend]service.Key{}
	config := Config{Pace: s.paceOf(d), Naming: addresses{},
		Owner: func(f service.Frontend) (owner service.Key, known bool) {
			owner, known = owners[f]
			return owner, known
		}}
	writer := owned(contract(m))
	lasts := time.Duration(0)
	for _, a := range d.CmdArgs {
		switch a.Key {
		case "gate":
			config.GateWait = duration(s.T, d, a.Vals[0])
		case "held":
			config.MayWrite = make(chan struct{})
		case "ahead":
			writer, lasts = contract(m), duration(s.T, d, a.Vals[0])
			writer.ReadAhead = func(context.Context) {}
		}
	}
	s.h = newPlayer(m, writer, config)
	s.h.ahead = lasts
	s.began, s.revisions, s.owners, s.kernel, s.status = s.h.now, map[string]service.Revision{}, owners, m.text(), ""
}

// keyOf returns the key of a name; node is the node's own.
func keyOf(name string) service.Key {
	if name == "node" {
		return service.Node
	}
	return service.Key{Namespace: "ns", Name: name}
}

// nameOf is the reverse of keyOf.
func nameOf(key service.Key) string { return cmp.Or(key.Name, "node") }

// names expands n00..n29.
func names(text string) (all []string) {
	from, to, isRange := strings.Cut(text, "..")
	if !isRange {
		return []string{text}
	}
	stem := strings.TrimRight(from, "0123456789")
	first, _ := strconv.Atoi(from[len(stem):])
	last, _ := strconv.Atoi(strings.TrimPrefix(to, stem))
	for n := first; n <= last; n++ {
		all = append(all, fmt.Sprintf("%s%0*d", stem, len(from)-len(stem), n))
	}
	return all
}

func (s *script) prime(d *datadriven.TestData) {
	var all []service.Key
	for _, a := range d.CmdArgs {
		for _, name := range names(a.Key) {
			all = append(all, keyOf(name))
		}
	}
	s.h.step(primed(all))
}

func (s *script) skip(d *datadriven.TestData) {
	for _, a := range d.CmdArgs {
		s.h.step(skipped(keyOf(a.Key)))
	}
}

var submission = regexp.MustCompile(`^(\S+?)(?: (\d+)\.(\d+))?:(.*)$`)

// submit takes one line per Service: "NAME [INCARNATION.SEQUENCE]: BODY…". No
// body is a tombstone. A body "@ADDRESS" claims port 80 of it, any other is that of NAME/0 and so
// on; those of the node are names.
func (s *script) submit(d *datadriven.TestData) {
	var all []*dataplane.Fragment
	for line := range strings.Lines(d.Input) {
		parts := submission.FindStringSubmatch(strings.TrimSpace(line))
		if parts == nil {
			d.Fatalf(s.T, "%q: must be NAME: BODY…", line)
		}
		for _, name := range names(parts[1]) {
			revision := s.revisions[name].Next()
			revision.Incarnation = max(revision.Incarnation, 1)
			if parts[2] != "" {
				revision.Incarnation, _ = strconv.ParseUint(parts[2], 10, 64)
				revision.Sequence, _ = strconv.ParseUint(parts[3], 10, 64)
			}
			s.revisions[name] = revision
			f := fragment(name, repeated(parts[4]))
			f.Revision = revision
			all = append(all, f)
		}
	}
	s.h.submitAll(all)
}

// repeated expands BODY*200.
func repeated(bodies string) (all []string) {
	for _, body := range strings.Fields(bodies) {
		body, times, _ := strings.Cut(body, "*")
		n, _ := strconv.Atoi(times)
		all = append(all, slices.Repeat([]string{body}, max(1, n))...)
	}
	return all
}

func fragment(name string, bodies []string) *dataplane.Fragment {
	var objects []dataplane.Object
	for i, body := range bodies {
		o := dataplane.Object{ID: dataplane.ID{Name: fmt.Sprintf("%s/%d", name, i)}, Body: body}
		if address, claims := strings.CutPrefix(body, "@"); claims {
			address, body, _ = strings.Cut(address, "=")
			o = dataplane.Object{ID: dataplane.ID{Container: "port 80", Name: address}, Kind: dataplane.Element, Body: name + body}
		}
		if name == "node" {
			o = dataplane.Object{ID: dataplane.ID{Name: body}}
		}
		objects = append(objects, o)
	}
	f := dataplane.NewFragment(keyOf(name), objects)
	f.Gone = len(bodies) == 0
	return f
}

// change changes the kernel, or how it takes writes, one line each.
func (s *script) change(d *datadriven.TestData) {
	m := s.h.model
	m.mu.Lock()
	defer m.mu.Unlock()
	for line := range strings.Lines(d.Input) {
		words := append(strings.Fields(line), "", "")
		switch words[0] {
		case "took":
			m.took = duration(s.T, d, words[1])
		case "suspects":
			m.receipts = map[string]receipts{"none": whole, "all": wholeAllNamed, "first": wholeFirstNamed, "proven": byObject}[words[1]]
		case "reject":
			m.rejects = rejecting(words[1])
			m.untilRead = words[2] == "until-read"
		case "fail":
			f := failure{outcome: outcomes[words[1]], lands: words[3] == "landed"}
			times, err := strconv.Atoi(words[2])
			if err != nil {
				d.Fatalf(s.T, "fail OUTCOME TIMES [landed]: %v", err)
			}
			m.fail = slices.Repeat([]failure{f}, times)
		case "unread":
			times, err := strconv.Atoi(words[1])
			if err != nil {
				d.Fatalf(s.T, "unread TIMES: %v", err)
			}
			m.unread = times
		case "lose":
			delete(m.objects, dataplane.ID{Name: words[1]})
		case "set":
			name, body, _ := strings.Cut(words[1], "=")
			m.objects[dataplane.ID{Name: name}] = body
		default:
			d.Fatalf(s.T, "%q: must be took, suspects, reject, fail, unread, lose or set", words[0])
		}
	}
}

var outcomes = map[string]dataplane.Outcome{"busy": dataplane.Busy, "unknown": dataplane.Unknown,
	"rejected": dataplane.Rejected, "unsupported": dataplane.Unsupported}

// rejecting rejects what contains a word, everything, or nothing.
func rejecting(word string) func(*dataplane.Change) bool {
	return func(c *dataplane.Change) bool {
		return word == "all" || word != "nothing" && c.After != nil && strings.Contains(c.ID.Name+"="+c.After.Body, word)
	}
}

func (s *script) wait(d *datadriven.TestData) {
	s.h.run(s.h.now.Add(duration(s.T, d, d.CmdArgs[0].Key)))
}

// owner takes the Service that owns frontends by the API.
func (s *script) owner(d *datadriven.TestData) {
	for _, a := range d.CmdArgs[1:] {
		s.owners[service.Frontend{Addr: netip.MustParseAddr(a.Key), Port: 80}] = keyOf(d.CmdArgs[0].Key)
	}
}

func (s *script) audit(d *datadriven.TestData) {
	by := dataplane.ForeignProcess{}
	if d.HasArg("by") {
		d.ScanArgs(s.T, "by", &by.Command)
		by.PID = 7
	}
	s.h.step(alarmed{by})
}

// addresses is the naming of port 80.
type addresses struct{}

func (addresses) Frontend(id dataplane.ID) (service.Frontend, bool) {
	addr, err := netip.ParseAddr(id.Name)
	if id.Container != "port 80" || err != nil {
		return service.Frontend{}, false
	}
	return service.Frontend{Addr: addr, Port: 80}, true
}

// Stage says that all objects are on the way; those of node lead to the others.
func (addresses) Stage(id dataplane.ID) dataplane.Stage {
	if strings.HasPrefix(id.Name, "node/") {
		return dataplane.StageEntry
	}
	return dataplane.StageFrontend
}

func (addresses) Sends(*dataplane.Object, func(netip.AddrPort)) {}

// owners says whose an object is: what is before the slash.
type owners struct{}

func (owners) Owner(o *dataplane.Object) (service.Key, bool) {
	name, _, owned := strings.Cut(o.ID.Name, "/")
	return keyOf(name), owned
}
func (owners) Refs(o *dataplane.Object) []dataplane.ID { return o.Refs() }

// owned returns a writer that knows the owners.
func owned(w dataplane.Writer) dataplane.Writer {
	w.Origin = owners{}
	return w
}
