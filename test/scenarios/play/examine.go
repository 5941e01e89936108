package play

import (
	"context"
	"fmt"

	"github.com/sluice-proxy/sluice/test/scenarios/cluster"
	"github.com/sluice-proxy/sluice/test/scenarios/fixture"
	"github.com/sluice-proxy/sluice/test/scenarios/script"
)

// Asked is a question of a plan in one family, as it is about to be asked.
type Asked struct {
	fixture.Question
	Line script.Line
	// Fate and Names are what the scenario wants, and Saw whom those who answer
	// should take for the client; "" if it does not say.
	Fate  fixture.Fate
	Names []string
	Saw   fixture.Source
	// Left are the verbs before it that were left out.
	Left []string
}

// Examine goes through a plan in no world at all: statements change what the API
// says, questions are shown and not asked, and what needs a kernel or a proxy is
// left out. It ends with the first error of visit.
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

// show shows a question in each of its families.
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

// nowhere is a world with nobody in it.
type nowhere struct{}

func (nowhere) Start() error { return nil }
func (nowhere) Close() error { return nil }

func (nowhere) Ask(_ context.Context, q fixture.Question) (fixture.Answer, error) {
	return fixture.Answer{}, fmt.Errorf("%v: nobody is here to ask", q)
}
