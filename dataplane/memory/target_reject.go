package memory

import (
	"strings"

	"github.com/sluice-proxy/sluice/dataplane/iptables"
	"github.com/sluice-proxy/sluice/service"
)

// rejectTarget is REJECT with the default answer, port unreachable.
type rejectTarget struct{ with string }

func newRejectTarget(family service.Family) *rejectTarget {
	if family == service.IPv6 {
		return &rejectTarget{with: "icmp6-port-unreachable"}
	}
	return &rejectTarget{with: "icmp-port-unreachable"}
}

func (t *rejectTarget) option(p *parser, name string) (bool, error) {
	if name != "--reject-with" {
		return false, nil
	}
	value, err := p.value(name)
	if err == nil && value != t.with {
		err = refusef("unknown reject type %q", value)
	}
	return true, err
}

func (t *rejectTarget) complete(*rule) error { return nil }

func (t *rejectTarget) allowed(table iptables.Table) hookSet {
	if table != iptables.Filter {
		return 0
	}
	return input | forward | output
}

func (t *rejectTarget) apply(*walk) fate { return rejected }

func (t *rejectTarget) print(b *strings.Builder) {
	write(b, false, "-j REJECT --reject-with", t.with)
}
