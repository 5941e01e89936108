package memory

import (
	"net/netip"
	"strings"

	"github.com/sluice-proxy/sluice/dataplane/iptables"
	"github.com/sluice-proxy/sluice/service"
)

// dnatTarget is DNAT: it gives the packet another destination, and ends the nat
// table for it.
type dnatTarget struct {
	addr netip.Addr
	// port 0 keeps the packet's port.
	port uint16
}

func (t *dnatTarget) option(p *parser, name string) (bool, error) {
	if name != "--to-destination" {
		return false, nil
	}
	value, err := p.value(name)
	if err != nil {
		return true, err
	}
	if t.addr.IsValid() {
		return true, refusef("DNAT: option %q can be used only once", name)
	}
	if to, err := netip.ParseAddrPort(value); err == nil {
		t.addr, t.port = to.Addr(), to.Port()
		if t.port == 0 {
			return true, refusef("Port `%s' not valid", value)
		}
	} else if t.addr, err = netip.ParseAddr(value); err != nil {
		return true, refusef("Bad IP address %q", value)
	}
	if service.FamilyOf(t.addr) != p.family {
		return true, refusef("Bad IP address %q", value)
	}
	return true, nil
}

func (t *dnatTarget) complete(r *rule) error {
	if !t.addr.IsValid() {
		return refusef(`DNAT: option "--to-destination" must be specified`)
	}
	if t.port != 0 && (!r.protocol.set || r.protocol.inverted) {
		return refusef("Need TCP, UDP, SCTP or DCCP with port specification")
	}
	return nil
}

func (t *dnatTarget) allowed(table iptables.Table) hookSet {
	if table != iptables.NAT {
		return 0
	}
	return prerouting | output
}

func (t *dnatTarget) apply(w *walk) fate {
	port := t.port
	if port == 0 {
		port = w.dst.Port()
	}
	w.dst = netip.AddrPortFrom(t.addr, port)
	w.translated = true
	return accepted
}

func (t *dnatTarget) print(b *strings.Builder) {
	to := t.addr.String()
	if t.port != 0 {
		to = netip.AddrPortFrom(t.addr, t.port).String()
	}
	write(b, false, "-j DNAT --to-destination", to)
}
