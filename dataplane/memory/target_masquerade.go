package memory

import (
	"strings"

	"github.com/sluice-proxy/sluice/dataplane/iptables"
)

// masqueradeTarget is MASQUERADE: the packet leaves with an address of the node
// as its source.
type masqueradeTarget struct{ randomFully bool }

func (t *masqueradeTarget) option(_ *parser, name string) (bool, error) {
	if name != "--random-fully" {
		return false, nil
	}
	t.randomFully = true
	return true, nil
}

func (t *masqueradeTarget) complete(*rule) error { return nil }

func (t *masqueradeTarget) allowed(table iptables.Table) hookSet {
	if table != iptables.NAT {
		return 0
	}
	return postrouting
}

func (t *masqueradeTarget) apply(w *walk) fate {
	w.masqueraded = true
	return accepted
}

func (t *masqueradeTarget) print(b *strings.Builder) {
	write(b, false, "-j MASQUERADE")
	if t.randomFully {
		write(b, false, "--random-fully")
	}
}
