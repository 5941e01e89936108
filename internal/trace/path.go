// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"fmt"

	nfttrace "github.com/sluice-proxy/sluice/dataplane/nftables/trace"
	"github.com/sluice-proxy/sluice/internal/explain"
)

// Lost is the verdict about a packet that vanished without a visible rule. The other verdicts are those of explain.
const Lost explain.Verdict = "lost"

// Path is the path of one or more packets.
type Path struct {
	// Packets is the number of packets that took the path. The addresses are those of the first one.
	Packets int  `json:"packets"`
	Reply   bool `json:"reply"`
	// New is set for the first packets of connections, for which addresses are translated.
	New bool `json:"new"`
	// ICMP is set for ICMP errors about the flow. They have no ports.
	ICMP bool   `json:"icmp,omitempty"`
	From string `json:"from"`
	To   string `json:"to"`
	// In and Out are interfaces. In is empty for a packet of this node, Out for a packet to this node.
	In    string          `json:"in,omitempty"`
	Out   string          `json:"out,omitempty"`
	Steps []nfttrace.Step `json:"steps"`
	// Verdict is how the path ends: delivered (to a process or through an interface), refused, dropped or lost.
	Verdict explain.Verdict `json:"verdict"`
	// By is the rule or policy that refused or dropped the packet.
	By *nfttrace.Step `json:"by,omitempty"`
	// Conclusion is the end of the path as a sentence.
	Conclusion string `json:"conclusion"`

	packet *nfttrace.Packet // the first one
}

// pathsOf groups packets that took the same path.
func pathsOf(packets []nfttrace.Packet) []Path {
	paths, known := []Path{}, map[string]int{}
	for i := range packets {
		p := &packets[i]
		key := keyOf(p)
		at, ok := known[key]
		if !ok {
			at = len(paths)
			known[key] = at
			paths = append(paths, newPath(p))
		}
		paths[at].Packets++
	}
	return paths
}

// keyOf returns a key that is equal for packets that differ only in the client's port.
func keyOf(p *nfttrace.Packet) string {
	server, seen, client := p.First.To, p.Last.To, p.Last.From.Addr()
	if p.Reply {
		server, seen, client = p.First.From, p.Last.From, p.Last.To.Addr()
	}
	key := fmt.Sprint(p.Reply, p.New, p.First.ICMP, server, seen, client, p.In, p.Out, p.Hook, p.Passed)
	for _, s := range p.Steps {
		key += fmt.Sprint("|", s.Hook, s.Table, s.Chain, s.Handle, s.Verdict)
	}
	return key
}

func newPath(p *nfttrace.Packet) Path {
	path := Path{
		Reply: p.Reply, New: p.New, ICMP: p.First.ICMP, From: p.First.Source(), To: p.First.Destination(),
		In: p.In, Out: p.Out, Steps: p.Steps, packet: p,
	}
	path.conclude(p)
	return path
}

// conclude derives the verdict and the conclusion.
func (path *Path) conclude(p *nfttrace.Packet) {
	end := &nfttrace.Step{}
	if len(p.Steps) > 0 {
		end = &p.Steps[len(p.Steps)-1]
	}
	translated := ""
	if to := p.Last.Destination(); to != path.To {
		translated += ", translated from " + path.To
	}
	if from := p.Last.Source(); from != path.From {
		translated += ", with the source " + from
	}
	switch {
	case end.Verdict == "reject":
		path.Verdict, path.By = explain.Refused, end
		path.Conclusion = "rejected by " + by(end)
	case end.Verdict == "drop":
		path.Verdict, path.By = explain.Dropped, end
		path.Conclusion = "dropped by " + by(end)
	case p.Passed && p.Hook == "postrouting":
		path.Verdict = explain.Delivered
		path.Conclusion = "delivered to " + p.Last.Destination() + " through " + p.Out + translated
	case p.Passed && p.Hook == "input":
		path.Verdict = explain.Delivered
		path.Conclusion = "delivered to " + p.Last.Destination() + " on this node" + translated
	case p.Passed:
		path.Verdict = Lost
		path.Conclusion = "lost after hook " + p.Hook + ": the kernel's routing discarded it (no route, or a reverse path filter)"
	case end.Verdict == "queue" || end.Verdict == "stolen":
		path.Verdict = Lost
		path.Conclusion = fmt.Sprintf("lost: verdict %s of %s", end.Verdict, by(end))
	default:
		path.Verdict = Lost
		path.Conclusion = "lost at hook " + p.Hook + ": discarded by something that is not traced (iptables-legacy, IPVS or BPF)"
	}
}

// by names the chain and the rule of a step.
func by(s *nfttrace.Step) string {
	chain := fmt.Sprintf("table %s, chain %s", s.Table, s.Chain)
	switch {
	case s.Policy:
		return chain + " (policy)"
	case s.Rule == 0:
		return fmt.Sprintf("%s, the rule with handle %d", chain, s.Handle)
	default:
		return fmt.Sprintf("%s, rule %d", chain, s.Rule)
	}
}
