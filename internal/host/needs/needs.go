// SPDX-License-Identifier: Apache-2.0

// Package needs checks what Service traffic needs on a node in addition to the proxy's rules: that the kernel forwards
// it, that no bridge bypasses the rules, and that the chains of other programs accept it. It changes nothing.
package needs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/internal/host/bridge"
	"github.com/sluice-proxy/sluice/service"
)

// Wants says what to look for.
type Wants struct {
	// Families are those whose packets the node forwards to endpoints.
	Families service.PerFamily[bool]
	// Pods reports whether the containers on a bridge are pods; nil means yes.
	Pods func(bridge.Bridge) bool
	// Legacy says that iptables-legacy belongs to other programs.
	Legacy bool
	// Read returns a kernel parameter by its path below /proc/sys.
	Read func(path string) (string, error)
}

// Node is what was found.
type Node struct {
	Problems []Problem
	// Chains are those of other programs. They are no problem by themselves.
	Chains []Chain
}

// Problem is something that keeps packets from endpoints.
type Problem struct {
	// About is the parameter, chain or bridge.
	About string
	// Text says what happens, and Do what a person can do.
	Text, Do string
}

// Read checks once, in the network namespace of the calling thread. It takes milliseconds. After an error, the rest of
// the answer is valid.
func Read(ctx context.Context, w Wants) (n Node, err error) {
	for _, family := range service.Families {
		if !w.Families[family] {
			continue
		}
		found, failed := w.forwarding(family)
		n.Problems, err = append(n.Problems, found...), errors.Join(err, failed)
	}
	var failed error
	n.Chains, failed = Chains(ctx, w.Legacy)
	n.Problems, err = append(n.Problems, w.closed(n.Chains)...), errors.Join(err, failed)
	bridges, failed := bridge.Find()
	for _, b := range bridges {
		if unruled := slices.DeleteFunc(slices.Clone(b.Unruled), func(f service.Family) bool { return !w.Families[f] }); len(unruled) > 0 && (w.Pods == nil || w.Pods(b)) {
			n.Problems = append(n.Problems, Bypass(b, unruled))
		}
	}
	return n, errors.Join(err, failed)
}

// Bypass describes a bridge whose packets between pods bypass the rules.
func Bypass(b bridge.Bridge, unruled []service.Family) Problem {
	var families, settings []string
	for _, family := range unruled {
		families = append(families, family.String())
		settings = append(settings, bridge.Setting(family))
	}
	return Problem{
		About: b.Name,
		Text: fmt.Sprintf("%s takes packets between its pods past the rules (%s): a pod that gets an endpoint on this bridge from a Service "+
			"does not understand the answer", b.Name, strings.Join(families, ", ")),
		Do: "load module br_netfilter, and set " + strings.Join(settings, " and ") + " to 1",
	}
}

// The parameters that make the kernel forward packets of a family.
var forwarding = service.PerFamily[string]{service.IPv4: "net/ipv4/ip_forward", service.IPv6: "net/ipv6/conf/all/forwarding"}

// forwarding checks whether the kernel forwards packets. For IPv4, each interface has a setting for the packets that it
// receives; for IPv6, one setting applies to the whole node.
func (w *Wants) forwarding(family service.Family) ([]Problem, error) {
	name := strings.ReplaceAll(forwarding[family], "/", ".")
	value, err := w.Read(forwarding[family])
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil // the kernel lacks the family
	case err != nil:
		return nil, err
	case value == "0":
		return []Problem{{name, name + " is 0: the node forwards no " + family.String() + " packets, so connections of other hosts and of pods do not reach endpoints",
			"set " + name + " to 1, also in /etc/sysctl.d"}}, nil
	case family == service.IPv6:
		return nil, nil
	}
	interfaces, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	var closed []string
	for _, i := range interfaces {
		if i.Flags&net.FlagLoopback != 0 || i.Flags&net.FlagUp == 0 {
			continue
		}
		if value, err := w.Read("net/ipv4/conf/" + i.Name + "/forwarding"); err == nil && value == "0" { // err: it was deleted
			closed = append(closed, i.Name)
		}
	}
	if len(closed) == 0 {
		return nil, nil
	}
	const named = 5
	names, more := strings.Join(closed[:min(named, len(closed))], ", "), ""
	if len(closed) > named {
		more = fmt.Sprintf(" and %d more", len(closed)-named)
	}
	return []Problem{{"net.ipv4.conf." + closed[0] + ".forwarding",
		"net.ipv4.conf.INTERFACE.forwarding is 0 for " + names + more + ": what arrives there is not forwarded to endpoints",
		"set it to 1 if clients of Services or pods are behind these interfaces"}}, nil
}

// closed returns the chains at hook forward, and FORWARD of iptables-legacy, that drop new connections to endpoints.
func (w *Wants) closed(chains []Chain) (all []Problem) {
	for i := range chains {
		c := &chains[i]
		relevant := slices.ContainsFunc(service.Families[:], func(f service.Family) bool { return w.Families[f] && c.Sees(f) })
		if c.Hook != "forward" && c.Hook != "" || !c.Drops || c.accepts || !relevant || c.family == unix.NFPROTO_BRIDGE {
			continue
		}
		do := "accept packets from and to the pod network in this chain (the CNI plugin usually does), or set the policy to accept"
		if strings.HasSuffix(c.Table, " filter") && c.Name == "FORWARD" {
			do += ": " + c.iptables() + " -P FORWARD ACCEPT"
		}
		all = append(all, Problem{c.Table + " " + c.Name, fmt.Sprintf("chain %s of table %s drops what the node forwards (policy drop), and no rule there accepts new "+
			"connections: clients of other hosts and pods do not reach endpoints", c.Name, c.Table), do})
	}
	return all
}
