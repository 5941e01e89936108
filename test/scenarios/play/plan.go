// SPDX-License-Identifier: Apache-2.0

package play

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/scenarios/cluster"
	"github.com/sluice-proxy/sluice/test/scenarios/fixture"
	"github.com/sluice-proxy/sluice/test/scenarios/script"
)

// Modes are the proxy's modes.
var Modes = []string{"iptables", "nftables", "ipvs", "userspace"}

// Plan is a scenario parsed for one mode. Besides the verbs, its lines may say
//
//	modes iptables nftables   it applies to these modes only
//	cannot MODE REASON        it does not apply to this mode, and why
//	families ipv4             it is played in these families only; default: both
//	flag --NAME=VALUE         a flag of the proxy; unset takes one away
//	podport NAME              the name of the node's interface to p1
//	needs FEATURE             what a machine may not have: sctp
//	differs TEXT              how and why it asks for something else than kube-proxy does
//
// A line that begins with a mode and a colon counts in that mode only.
type Plan struct {
	script.Scenario
	// Applies is false if the scenario says nothing about the mode. Cannot is the reason if it
	// cannot hold there. Modes are the only ones that it is about; none for all.
	Applies bool
	Cannot  string
	Modes   []string
	// Kernel is the first verb that needs a real kernel, or "".
	Kernel string
	// Needs lists features, Differs the intended deviations from kube-proxy.
	Needs, Differs []string
	Families       []service.Family
	// Flags are the proxy's flags, without dashes.
	Flags   map[string]string
	PodPort string
	// Compare, if set, is told the answers to each question, once they are as wanted. Its error
	// counts as that of the question.
	Compare func(context.Context, fixture.Question, map[fixture.Answer]int) error

	mode  string
	steps []step
}

// NewPlan parses a scenario for a mode. An error names file and line.
func NewPlan(s script.Scenario, mode string) (*Plan, error) {
	p := &Plan{Scenario: s, Applies: true, Families: service.Families[:], Flags: make(map[string]string), mode: mode}
	for _, line := range s.Lines {
		if only, ok := strings.CutSuffix(line.Words[0], ":"); ok && slices.Contains(Modes, only) {
			if only != mode || len(line.Words) == 1 {
				continue
			}
			line.Words = line.Words[1:]
		}
		if err := p.add(line); err != nil {
			return nil, fmt.Errorf("%s:%d: %s: %w", s.File, line.Number, s.ID, err)
		}
	}
	if p.Applies && len(p.steps) == 0 {
		return nil, fmt.Errorf("%v asks for nothing in mode %s", s, mode)
	}
	return p, nil
}

// Says reports whether a verb is among the lines.
func (p *Plan) Says(verb string) bool {
	return slices.ContainsFunc(p.steps, func(s step) bool { return s.line.Words[0] == verb })
}

func (p *Plan) add(line script.Line) error {
	words := line.Words[1:]
	switch line.Words[0] {
	case "modes":
		for _, word := range words {
			if !slices.Contains(Modes, word) {
				return fmt.Errorf("modes: %q: want %s", word, strings.Join(Modes, ", "))
			}
		}
		p.Modes, p.Applies = words, slices.Contains(words, p.mode)
	case "families":
		p.Families = nil
		for _, word := range words {
			at := slices.Index([]string{"ipv4", "ipv6"}, word)
			if at < 0 {
				return fmt.Errorf("families: %q: want ipv4 or ipv6", word)
			}
			p.Families = append(p.Families, service.Families[at])
		}
	case "flag":
		for _, word := range words {
			name, value, err := fixture.ParseFlag(word)
			if err != nil {
				return fmt.Errorf("flag: %w", err)
			}
			p.Flags[name] = value
		}
	case "podport":
		p.PodPort = strings.Join(words, " ")
	case "needs":
		p.Needs = append(p.Needs, words...)
	case "cannot":
		if len(words) < 2 || !slices.Contains(Modes, words[0]) {
			return fmt.Errorf("cannot: want one of %s, and a reason", strings.Join(Modes, ", "))
		}
		if words[0] == p.mode {
			p.Applies, p.Cannot = false, strings.Join(words[1:], " ")
		}
	case "differs":
		p.Differs = append(p.Differs, strings.Join(words, " "))
	default:
		made, kernel, err := understand(p.seen(line))
		if err != nil {
			return err
		}
		if kernel && p.Kernel == "" {
			p.Kernel = line.Words[0]
		}
		// Sockets of the proxy serve node ports on localhost, not rules.
		if q, ok := made.statement.(ask); ok && q.target.name == "loopback" && p.mode == "nftables" && p.Kernel == "" {
			p.Kernel = "a question to loopback"
		}
		p.steps = append(p.steps, made)
	}
	return nil
}

// seen returns a line with the source that endpoints see: in mode userspace that is the process that
// forwards. Hosts that are reached without it still see their clients.
func (p *Plan) seen(line script.Line) script.Line {
	hosts := []string{"beyond", "host"}
	at := slices.Index(line.Words, "as")
	if p.mode != "userspace" || at < 0 || at+1 == len(line.Words) || slices.Contains(hosts, line.Words[at-1]) {
		return line
	}
	line.Words = slices.Clone(line.Words)
	line.Words[at+1] = string(fixture.AsNode)
	return line
}

// statement is a parsed line.
type statement interface {
	run(ctx context.Context, s *Stage) error
}

// verb makes a statement from the words after it.
type verb struct {
	// parse parses the words after the verb.
	parse func(words []string) (statement, error)
	// usage is an example.
	usage string
	// kernel is true if the verb needs a real kernel.
	kernel bool
}

// verbs holds every verb. Each file adds its own.
var verbs = map[string]verb{}

// define adds a verb. It is called while the package is initialised.
func define(word string, v verb) struct{} {
	if _, known := verbs[word]; known {
		panic("two verbs " + word)
	}
	verbs[word] = v
	return struct{}{}
}

// act is a statement that is a function.
type act func(ctx context.Context, s *Stage) error

func (a act) run(ctx context.Context, s *Stage) error { return a(ctx, s) }

// step is a statement with its line.
type step struct {
	statement
	line script.Line
}

// understand parses a line, and reports whether it needs a real kernel.
func understand(line script.Line) (step, bool, error) {
	if slices.Contains(line.Words, "->") {
		made, err := parseAsk(line.Words)
		return step{made, line}, false, err
	}
	v, ok := verbs[line.Words[0]]
	if !ok {
		return step{}, false, fmt.Errorf("%q: want CLIENT -> TARGET => OUTCOME, or one of the verbs %s", line.Words[0],
			strings.Join(slices.Sorted(maps.Keys(verbs)), ", "))
	}
	made, err := v.parse(line.Words[1:])
	if err != nil {
		return step{}, false, fmt.Errorf("%w; for example: %s", err, v.usage)
	}
	return step{made, line}, v.kernel, nil
}

// Asked is a question of a plan in one family.
type Asked struct {
	fixture.Question
	Line script.Line
	// Fate and Names are what the scenario wants, Saw is whose address servers should see, or ""
	// for any.
	Fate  fixture.Fate
	Names []string
	Saw   fixture.Source
	// Left are the verbs before it that Examine left out.
	Left []string
}

// Examine walks through a plan without a world. It performs statements that change what the API
// says, calls visit for each question, and leaves out what needs a kernel or a proxy. It ends with
// the first error of visit.
func (p *Plan) Examine(server cluster.Server, visit func(Asked) error) error {
	s := newStage(nowhere{}, server, p.Families)
	s.stopped = true // so that nothing waits for a proxy
	var left []string
	for _, st := range p.steps {
		verb := st.line.Words[0]
		a, ok := st.statement.(ask)
		switch {
		case ok:
			if err := p.show(s, a, Asked{Line: st.line, Left: left}, visit); err != nil {
				return err
			}
		case verbs[verb].kernel, verb == "settle", verb == "unsettled":
			left = append(left, verb)
		default:
			if err := st.run(context.Background(), s); err != nil {
				return p.failed(st, err)
			}
		}
	}
	return nil
}

// show calls visit for a question in each of its families.
func (p *Plan) show(s *Stage, a ask, shown Asked, visit func(Asked) error) error {
	for _, family := range a.of(s) {
		q, err := a.question(s, family)
		if err != nil {
			return p.failed(step{a, shown.Line}, err)
		}
		shown.Question, shown.Fate, shown.Names, shown.Saw = q, a.want.fate, a.want.names, a.want.as
		if err := visit(shown); err != nil {
			return err
		}
	}
	return nil
}

// nowhere is an empty world.
type nowhere struct{}

func (nowhere) Start() error { return nil }
func (nowhere) Close() error { return nil }

func (nowhere) Ask(_ context.Context, q fixture.Question) (fixture.Answer, error) {
	return fixture.Answer{}, fmt.Errorf("%v: there is no world to ask", q)
}
