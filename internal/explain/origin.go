// SPDX-License-Identifier: Apache-2.0

//go:build linux

package explain

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/sluice-proxy/sluice/service"
)

// guess decides where the packet comes from, and through which interface. It records its assumptions.
func (e *explanation) guess() {
	from := e.From.Addr()
	reason := ""
	switch {
	case e.Interface == "" && (e.local(from) || e.Mode == IPVS && from == e.To.Addr() && len(e.frontends) > 0):
		e.origin = FromNode
		return
	default:
		e.origin, reason = e.guessOrigin(from)
	}
	e.assume("%s is %s: %s", from, e.origin, reason)
	if e.in = e.Interface; e.in != "" {
		return
	}
	if e.Towards != nil {
		e.in = e.Towards(from)
	}
	if e.in != "" {
		e.assume("it arrives through %s, by which this node reaches %s", e.in, from)
		return
	}
	e.in = e.guessInterface()
	if on := e.Facts.Detect[e.family].Interface; on != "" {
		e.assume("it arrives through an interface like %s (local pods are known by the interface %s; --iface names another)", e.in, on)
	}
}

func (e *explanation) assume(format string, args ...any) {
	e.assumed = append(e.assumed, fmt.Sprintf(format, args...))
}

// guessOrigin returns where a client other than the node is, and why.
func (e *explanation) guessOrigin(from netip.Addr) (Origin, string) {
	detect := e.Facts.Detect[e.family]
	if matchesInterface(detect, e.Interface) {
		return FromPod, "the interface is one of local pods"
	}
	for i := range e.concerned {
		for _, s := range e.concerned[i].snapshot.Slices {
			for _, p := range s.Endpoints {
				if p.Addr != from {
					continue
				}
				if p.Where().NodeName == e.Facts.Name {
					return FromPod, fmt.Sprintf("an endpoint of %s that runs here", e.concerned[i].view.Key)
				}
				return FromOutside, fmt.Sprintf("an endpoint of %s that runs on node %s", e.concerned[i].view.Key, p.Where().NodeName)
			}
		}
	}
	if node := e.Node; node != nil && node.PodCIDRs[e.family].IsValid() {
		if pods := node.PodCIDRs[e.family]; pods.Contains(from) {
			return FromPod, fmt.Sprintf("in the pod range of this node, %s", pods)
		}
		return FromOutside, "neither an address of this node nor in its pod range"
	}
	if detect.CIDR.IsValid() && detect.CIDR.Contains(from) {
		return FromPod, fmt.Sprintf("in the range of pods, %s", detect.CIDR)
	}
	return FromOutside, "neither an address of this node nor known as a pod's"
}

// guessInterface invents a name that rules about local pods match if the client is a pod, and otherwise do not match.
func (e *explanation) guessInterface() string {
	const pod, outside, other = "veth0", "eth0", "outside0"
	detect := e.Facts.Detect[e.family]
	prefix, open := strings.CutSuffix(detect.Interface, "+")
	switch {
	case e.origin == FromPod && open:
		return prefix + "0"
	case e.origin == FromPod && detect.Interface != "":
		return detect.Interface
	case e.origin == FromPod:
		return pod
	case matchesInterface(detect, outside):
		return other
	default:
		return outside
	}
}

// matchesInterface reports whether local pods are detected by interface, and the name is that of such an interface.
func matchesInterface(detect service.LocalDetector, name string) bool {
	prefix, open := strings.CutSuffix(detect.Interface, "+")
	return detect.Interface != "" && name != "" && (name == detect.Interface || open && strings.HasPrefix(name, prefix))
}

// detected reports whether the rules treat the client as a local pod.
func (e *explanation) detected() bool {
	detect := e.Facts.Detect[e.family]
	if detect.CIDR.IsValid() {
		return detect.CIDR.Contains(e.From.Addr())
	}
	return matchesInterface(detect, e.in)
}
