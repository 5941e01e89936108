// Package ipset speaks to the kernel's sets of addresses and ports, which
// iptables rules ask with -m set: it makes sets, changes their entries and lists
// both, in one network namespace. It knows how entries are written as text (as
// ipset(8) prints them) and as bytes; what they mean is its users' business.
//
// Everything here may be repeated: what is there already is made with success,
// and so is what is gone already removed, as with ipset(8)'s option -exist.
//
// Results are per item and tell three things apart: nil is done for certain; an
// error is not done for certain; an error that matches [ErrUnanswered] is
// unknown. See [Unknown].
//
// It has messages of its own because those of github.com/vishvananda/netlink
// carry one entry each and wait for the answer, while here hundreds of entries
// share a message and several messages a send (see [Socket.Add]); because it tears
// a listed set that does not fit one message into several; and because it prints
// to the standard logger what it does not know of a newer kernel.
//
// The facts about the protocol are those of include/uapi/linux/netfilter/ipset
// and net/netfilter/ipset/ip_set_core.c in Linux 6.1.
package ipset
