// SPDX-License-Identifier: Apache-2.0

package actors

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// TestMachine_Scripts runs the scripts in testdata; testdata/README.md describes their notation.
func TestMachine_Scripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		if strings.HasSuffix(path, ".txt") {
			s := &machineScript{}
			datadriven.RunTest(t, path, s.step)
		}
	})
}

// machineScript is one machine with two domains, under the commands of a file.
type machineScript struct {
	m *Machine
	// last has the revision that each domain was sent last.
	last map[string]service.Revision
}

func (s *machineScript) step(t *testing.T, d *datadriven.TestData) string {
	has := func(word string) bool { return d.HasArg(word) }
	at := func(word string) (when time.Time) {
		if has(word) {
			text := ""
			d.ScanArgs(t, word, &text)
			after, err := time.ParseDuration(text)
			if err != nil {
				d.Fatalf(t, "%v", err)
			}
			when = noon.Add(after)
		}
		return when
	}
	cause := Cause{Trigger: at("trigger"), Received: at("received")}
	text := ""
	switch d.Cmd {
	case "machine":
		key := web
		if has("node") {
			key = service.Node
		}
		s.m, s.last = NewMachine(key, 3, outputs), map[string]service.Revision{}
	case "hydrate":
		snapshot := service.Snapshot{}
		if !has("gone") {
			snapshot.Spec = spec()
		}
		for line := range strings.Lines(d.Input) {
			words := strings.Fields(line)
			snapshot.Slices = append(snapshot.Slices, slice(words[0], words[1:]...))
		}
		s.m.Hydrate(snapshot, facts, time.Now())
	case "spec":
		msg := SpecChanged{Spec: spec(), Anew: has("anew"), Cause: cause}
		if has("local") {
			msg.Spec.ExternalLocal, msg.Spec.HealthCheckNodePort = true, 31000
		}
		if has("gone") {
			msg.Spec = nil
		}
		s.m.Step(msg)
	case "slice":
		msg := SliceChanged{Name: d.CmdArgs[0].Key, Cause: cause}
		var addresses []string
		for _, a := range d.CmdArgs[1:] {
			if len(a.Vals) == 0 {
				addresses = append(addresses, a.Key)
			}
		}
		if len(addresses) > 0 {
			msg.Slice = slice(msg.Name, addresses...)
			msg.Slice.Trigger = cause.Trigger
		}
		s.m.Step(msg)
	case "facts":
		s.m.SetFacts(&service.NodeFacts{Name: "n1", Zone: d.CmdArgs[0].Key})
	case "turn":
		text = s.turn(t)
	case "ack":
		domain := d.CmdArgs[0].Key
		ack := dataplane.Ack{Key: web, Domain: domain, Revision: s.last[domain], Quarantined: has("quarantined")}
		if has("of") {
			d.ScanArgs(t, "of", &ack.Revision.Sequence)
		}
		s.m.Step(Acknowledged{ack})
	case "forget":
		if s.m.Forget(); s.m.view == nil {
			text = "forgotten\n"
		}
	default:
		d.Fatalf(t, "no such command; see testdata/README.md")
	}
	return text + s.state()
}

// turn ends a turn and returns the fragments.
func (s *machineScript) turn(t *testing.T) (text string) {
	if s.m.Stale() {
		return "must be hydrated first\n"
	}
	ready := s.m.Conclude(t.Context(), noon)
	if ready.Fragments == nil {
		text = "nothing to render\n"
	}
	for i, f := range ready.Fragments {
		if f == nil {
			text += outputs[i].Name + " has it already\n"
			continue
		}
		s.last[outputs[i].Name] = f.Revision
		text += fmt.Sprintf("%s %v:", outputs[i].Name, f.Revision)
		for _, o := range f.Objects {
			text += " " + strings.TrimSpace(o.Body)
		}
		text += map[bool]string{true: " (gone)"}[f.Gone]
		if causes := f.Trace.Causes.Names(); causes != nil {
			text += " because of " + strings.Join(causes, ", ")
		}
		if !f.Trigger.IsZero() {
			text += fmt.Sprintf("; trigger %v, received %v", f.Trigger.Sub(noon), f.Received.Sub(noon))
		}
		text += "\n"
	}
	return text + serves(&ready)
}

// serves returns the views that are newly applied.
func serves(ready *Ready) (text string) {
	for _, i := range ready.Programmed {
		text += outputs[i].Name + " serves:"
		for _, p := range ready.View.Ports[service.IPv4] {
			for _, e := range p.Cluster {
				text += " " + e.String()
			}
		}
		if port := ready.View.HealthCheckNodePort; port != 0 {
			text += fmt.Sprintf(", health-check node port %d", port)
		}
		text += "\n"
	}
	return text
}

func (s *machineScript) state() string {
	state := [...]string{Hydrating: "hydrating", Live: "live", Draining: "draining", Retired: "retired"}[s.m.State()]
	if s.m.State() != Hydrating && s.m.Stale() {
		state += ", stale"
	}
	return state
}
