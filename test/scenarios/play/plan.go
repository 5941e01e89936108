package play

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/scenarios/script"
)

// Modes are the modes of the proxy that scenarios can be played in.
var Modes = []string{"iptables", "nftables", "ipvs"}

// Plan is a scenario that was understood for one mode. Besides the verbs, its lines
// may say
//
//	modes iptables nftables   it applies to these modes only
//	families ipv4             it is played in these families only; default: both
//	flag --NAME=VALUE         a flag of the proxy; unset takes one away
//	podport NAME              the name of the node's interface to p1
//	needs FEATURE             what a machine may not have: sctp
//	differs TEXT              how and why it asks for something else than kube-proxy does
//
// and a line that begins with a mode and a colon counts in that mode only.
type Plan struct {
	script.Scenario
	// Applies is false if the scenario says nothing about the mode.
	Applies bool
	// Kernel is the first verb that a model cannot do, or "".
	Kernel string
	// Needs lists features, Differs the deviations on purpose.
	Needs, Differs []string
	Families       []service.Family
	// Flags are those of the proxy, without dashes.
	Flags   map[string]string
	PodPort string

	mode  string
	steps []step
}

// NewPlan understands a scenario for a mode. An error names file and line.
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

func (p *Plan) add(line script.Line) error {
	words := line.Words[1:]
	switch line.Words[0] {
	case "modes":
		for _, word := range words {
			if !slices.Contains(Modes, word) {
				return fmt.Errorf("modes: %q: want %s", word, strings.Join(Modes, ", "))
			}
		}
		p.Applies = slices.Contains(words, p.mode)
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
			name, value, ok := strings.Cut(strings.TrimPrefix(word, "--"), "=")
			if !ok || !strings.HasPrefix(word, "--") {
				return fmt.Errorf("flag: %q: want --NAME=VALUE", word)
			}
			p.Flags[name] = value
		}
	case "podport":
		p.PodPort = strings.Join(words, " ")
	case "needs":
		p.Needs = append(p.Needs, words...)
	case "differs":
		p.Differs = append(p.Differs, strings.Join(words, " "))
	default:
		made, kernel, err := understand(line)
		if err != nil {
			return err
		}
		if kernel && p.Kernel == "" {
			p.Kernel = line.Words[0]
		}
		// Node ports on localhost are served by sockets of the proxy, not by rules.
		if q, ok := made.statement.(ask); ok && q.target.name == "loopback" && p.mode == "nftables" && p.Kernel == "" {
			p.Kernel = "a question to loopback"
		}
		p.steps = append(p.steps, made)
	}
	return nil
}
