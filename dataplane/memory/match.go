package memory

import (
	"strings"

	"github.com/sluice-proxy/sluice/service"
)

// match is one -m of a rule.
type match interface {
	// option reads the option and its values from the parser, and gives false
	// when the match has no such option.
	option(p *parser, name string) (bool, error)
	// complete is called once, when the whole rule is read.
	complete(r *rule) error
	// holds tells whether the packet matches.
	holds(w *walk) bool
	// print appends the match as iptables-save does, after a space.
	print(b *strings.Builder)
}

// newMatch gives an empty match, or nil when there is none of that name.
func newMatch(d dialect, name string) match {
	switch name {
	case "tcp":
		return &portMatch{protocol: service.TCP}
	case "udp":
		return &portMatch{protocol: service.UDP}
	case "sctp":
		return &portMatch{protocol: service.SCTP}
	case "comment":
		return &commentMatch{}
	case "conntrack":
		return &conntrackMatch{}
	case "mark":
		return &markMatch{}
	case "addrtype":
		return &addrtypeMatch{}
	case "statistic":
		return &statisticMatch{}
	case "recent":
		return &recentMatch{family: d.family}
	case "nfacct":
		return &accountMatch{}
	default:
		return nil
	}
}
