package memory

import (
	"net/netip"
	"time"

	"github.com/sluice-proxy/sluice/dataplane/iptables"
	"github.com/sluice-proxy/sluice/service"
)

// walk is one packet on its way through the hooks.
type walk struct {
	kernel *Kernel
	recent *recentBook
	choose Choice
	now    time.Time

	src, dst netip.AddrPort
	protocol service.Protocol
	// in and out are the interfaces that the hook at hand can see.
	in, out string
	mark    uint32
	// translated is set once the packet has another destination, masqueraded
	// once it leaves with another source.
	translated, masqueraded bool

	steps   []string
	visited int
}

func (w *walk) local(a netip.Addr) bool { return w.kernel.local(a) }

// follow takes the packet through the hooks in the kernel's order:
//
//	arrived ─ PREROUTING ─ route ─┬─ INPUT (an address of the node)
//	                              └─ FORWARD ─ POSTROUTING
//	process ─ OUTPUT ─ POSTROUTING ─ (loopback: PREROUTING ─ INPUT)
//
// On the loopback interface the connection is known to the nat table already,
// which is therefore not asked again. It gives accepted, dropped or rejected.
func (w *walk) follow(in, out string) fate {
	if in == "" {
		return w.send(out)
	}
	if f := w.hook("PREROUTING", in, "", iptables.Mangle, iptables.NAT); f != accepted {
		return f
	}
	if w.local(w.dst.Addr()) {
		return w.hook("INPUT", in, "", iptables.Mangle, iptables.Filter, iptables.NAT)
	}
	if f := w.hook("FORWARD", in, out, iptables.Mangle, iptables.Filter); f != accepted {
		return f
	}
	return w.hook("POSTROUTING", "", out, iptables.Mangle, iptables.NAT)
}

// send follows a packet of a process of the node.
func (w *walk) send(out string) fate {
	const loopback = "lo"
	if f := w.hook("OUTPUT", "", out, iptables.Mangle, iptables.NAT, iptables.Filter); f != accepted {
		return f
	}
	stays := w.local(w.dst.Addr())
	if stays {
		out = loopback
	}
	if f := w.hook("POSTROUTING", "", out, iptables.Mangle, iptables.NAT); f != accepted || !stays {
		return f
	}
	if f := w.hook("PREROUTING", loopback, "", iptables.Mangle); f != accepted {
		return f
	}
	return w.hook("INPUT", loopback, "", iptables.Mangle, iptables.Filter)
}

// hook runs the built-in chain of several tables.
func (w *walk) hook(name, in, out string, tables ...iptables.Table) fate {
	w.in, w.out = in, out
	for _, table := range tables {
		t := w.kernel.tables[table]
		f := w.chain(t, name)
		if f != dropped && f != rejected && f != accepted && t.chains[name].policy == "DROP" {
			f = dropped
		}
		if f == dropped || f == rejected {
			return f
		}
	}
	return accepted
}

// chain runs the rules of one chain.
func (w *walk) chain(t *table, name string) fate {
	for _, r := range t.chains[name].rules {
		w.visited++
		if !r.holds(w) {
			continue
		}
		w.steps = append(w.steps, string(t.name)+" "+r.line(name))
		if r.target == nil {
			continue
		}
		f := r.target.apply(w)
		if to := r.jump(); to != "" {
			if f = w.chain(t, to); f == returned {
				f = onward
			}
		}
		if f != onward {
			return f
		}
	}
	return onward
}
