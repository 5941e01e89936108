package memory

import (
	"strings"

	"github.com/sluice-proxy/sluice/dataplane/iptables"
)

// target is what a rule does with a packet that matches.
type target interface {
	// option reads the option and its values from the parser, and gives false
	// when the target has no such option.
	option(p *parser, name string) (bool, error)
	// complete is called once, when the whole rule is read.
	complete(r *rule) error
	// allowed tells from which hooks of the table a packet may get here; none
	// means that the target has no place in the table.
	allowed(t iptables.Table) hookSet
	// apply does it. Jumps are followed by the walk itself.
	apply(w *walk) fate
	// print appends the target as iptables-save does, after a space.
	print(b *strings.Builder)
}

// fate is what becomes of a packet after a rule or a chain.
type fate uint8

const (
	// onward: the next rule is asked.
	onward fate = iota
	// returned: the rest of the chain is left out.
	returned
	// accepted: the rest of the table is left out.
	accepted
	dropped
	rejected
)

// fates are the targets without options.
var fates = map[string]fate{"ACCEPT": accepted, "DROP": dropped, "RETURN": returned}

// reserved are names that no chain can have.
var reserved = map[string]bool{
	"ACCEPT": true, "DROP": true, "RETURN": true, "QUEUE": true,
	"MARK": true, "DNAT": true, "MASQUERADE": true, "REJECT": true,
}

// newTarget gives the target of that name. A name that is not reserved is a
// chain's; whether that exists is for the table to know.
func newTarget(d dialect, name string) (target, error) {
	switch name {
	case "":
		return nil, refusal("Invalid target name (too short)")
	case "ACCEPT", "RETURN":
		return fateTarget(name), nil
	case "DROP":
		if d.table == iptables.NAT {
			return nil, refusal("\nThe \"nat\" table is not intended for filtering, the use of DROP is therefore inhibited.")
		}
		return fateTarget(name), nil
	case "MARK":
		return &markTarget{}, nil
	case "DNAT":
		return &dnatTarget{}, nil
	case "MASQUERADE":
		return &masqueradeTarget{}, nil
	case "REJECT":
		return newRejectTarget(d.family), nil
	case "QUEUE":
		return nil, refusef("Couldn't load target `%s':No such file or directory", name)
	default:
		return jumpTarget(name), nil
	}
}

// fateTarget is ACCEPT, DROP or RETURN.
type fateTarget string

func (t fateTarget) option(*parser, string) (bool, error) { return false, nil }
func (t fateTarget) complete(*rule) error                 { return nil }
func (t fateTarget) allowed(iptables.Table) hookSet       { return anyHook }
func (t fateTarget) apply(*walk) fate                     { return fates[string(t)] }
func (t fateTarget) print(b *strings.Builder)             { write(b, false, "-j", string(t)) }

// jumpTarget is a jump to another chain of the table.
type jumpTarget string

func (t jumpTarget) option(*parser, string) (bool, error) { return false, nil }
func (t jumpTarget) complete(*rule) error                 { return nil }
func (t jumpTarget) allowed(iptables.Table) hookSet       { return anyHook }
func (t jumpTarget) apply(*walk) fate                     { return onward }
func (t jumpTarget) print(b *strings.Builder)             { write(b, false, "-j", string(t)) }
