// SPDX-License-Identifier: Apache-2.0

package aggregator

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/sluice-proxy/sluice/service"
)

// TestPacer_Scripts runs the scripts in testdata/pacer; testdata/README.md describes their notation.
func TestPacer_Scripts(t *testing.T) {
	datadriven.Walk(t, "testdata/pacer", func(t *testing.T, path string) {
		p := &Pacer{}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			if d.Cmd == "pacer" {
				p = NewPacer((&script{T: t}).paceOf(d))
				return ""
			}
			return stepPacer(t, p, d)
		})
	})
}

func stepPacer(t *testing.T, p *Pacer, d *datadriven.TestData) string {
	given := func(name string) (took time.Duration) {
		if d.HasArg(name) {
			var text string
			d.ScanArgs(t, name, &text)
			took = duration(t, d, text)
		}
		return took
	}
	now := epoch.Add(given("at"))
	switch d.Cmd {
	case "waiting":
		p.Waiting(now)
	case "taken":
		p.Taken()
	case "wrote":
		p.Wrote(now, given("took"), !d.HasArg("failed"), 0)
	case "recovered":
		p.Recovered()
	case "auditing":
		p.Auditing()
	case "audited":
		p.Audited(now, given("took"), !d.HasArg("failed"))
	case "soon":
		p.AuditSoon(now)
	case "first":
		p.AuditFirst(now)
	case "by":
		p.AuditBy(now)
	case "rest":
		p.Rest(now)
	case "next":
		action, until := p.Next(now)
		if action == Sleep {
			return "sleep until " + until.Sub(epoch).String()
		}
		return map[Action]string{Write: "write", Audit: "audit"}[action]
	default:
		d.Fatalf(t, "no such command; see testdata/README.md")
	}
	return ""
}

// TestBisection_Scripts runs the scripts in testdata/bisection.
func TestBisection_Scripts(t *testing.T) {
	datadriven.Walk(t, "testdata/bisection", func(t *testing.T, path string) {
		s := &bisection{}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			if d.Cmd == "bisection" {
				*s = bisection{}
				return ""
			}
			return stepBisection(t, s, d)
		})
	})
}

func stepBisection(t *testing.T, s *bisection, d *datadriven.TestData) (text string) {
	var all, named []service.Key
	for _, a := range d.CmdArgs {
		for _, value := range a.Vals {
			named = append(named, keyOf(value))
		}
		if len(a.Vals) == 0 {
			for _, name := range names(a.Key) {
				all = append(all, keyOf(name))
			}
		}
	}
	switch d.Cmd {
	case "suspect":
		s.suspect(all, named)
	case "alone":
		s.alone(all[0], 0)
	case "next":
		text = "try " + keysText(s.next()) + "\n"
	case "landed":
		s.landed()
	case "rejected":
		if len(all) == 0 {
			all = s.current.keys
		}
		if culprit, found := s.rejected(all, named); found {
			text = "culprit " + nameOf(culprit) + "\n"
		}
	default:
		d.Fatalf(t, "no such command; see testdata/README.md")
	}
	var groups []string
	for _, g := range s.groups {
		groups = append(groups, keysText(g.keys)+when(g.hasCulprit, " (has a culprit)"))
	}
	return text + fmt.Sprintf("%d tries; left: %s", s.spent, strings.Join(groups, " | "))
}

func keysText(keys []service.Key) string {
	var all []string
	for _, key := range keys {
		all = append(all, nameOf(key))
	}
	return compress(all)
}
