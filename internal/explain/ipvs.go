// SPDX-License-Identifier: Apache-2.0

//go:build linux

package explain

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/sluice-proxy/sluice/dataplane"
	ipvsrender "github.com/sluice-proxy/sluice/dataplane/ipvs/render"
	ipvswire "github.com/sluice-proxy/sluice/dataplane/ipvs/wire"
	"github.com/sluice-proxy/sluice/service"
)

// ipvsRules follows packets through the rules of IPVS mode, which look up sets, and through its
// virtual servers.
type ipvsRules struct {
	*iptRules
	servers map[service.Frontend]*ipvsrender.Server
}

// newIPVSRules takes the objects of one domain. Addresses of the IPVS device are local, like the node's own.
func newIPVSRules(objects []dataplane.Object, locals []netip.Addr) (*ipvsRules, error) {
	r := &ipvsRules{servers: make(map[service.Frontend]*ipvsrender.Server)}
	locals = slices.Clone(locals)
	sets := make(map[string]ipSet)
	var rules []dataplane.Object
	for i := range objects {
		o := &objects[i]
		if _, isEntry := ipvsrender.EntrySet(o.ID); isEntry {
			continue // after all sets
		}
		switch o.ID.Container {
		case ipvsrender.ContainerDevice:
		case ipvsrender.ContainerAddress:
			addr, err := ipvsrender.ParseAddress(o.ID)
			if err != nil {
				return nil, err
			}
			locals = append(locals, addr)
		case ipvsrender.ContainerServer:
			server, err := ipvsrender.ParseServer(o)
			if err != nil {
				return nil, err
			}
			r.servers[server.Frontend] = &server
		case ipvsrender.ContainerSet:
			set, err := ipvsrender.ParseSet(o)
			if err != nil {
				return nil, err
			}
			sets[set.Name] = ipSet{kind: set.Type}
		default:
			rules = append(rules, *o)
		}
	}
	if err := fillSets(sets, objects); err != nil {
		return nil, err
	}
	// Each hook was inserted at the top of its chain, so the last one inserted comes first.
	r.iptRules = newIPTRules(rules, locals)
	for _, c := range r.chains {
		if !ipvsrender.OwnsChain(c.table, c.name) {
			slices.Reverse(c.texts)
		}
	}
	r.sets = sets
	return r, nil
}

// fillSets adds the entries to their sets.
func fillSets(sets map[string]ipSet, objects []dataplane.Object) error {
	for i := range objects {
		name, isEntry := ipvsrender.EntrySet(objects[i].ID)
		if !isEntry {
			continue
		}
		set, known := sets[name]
		if !known {
			return fmt.Errorf("there is no set %q for the entry %s", name, objects[i].ID.Name)
		}
		entry, err := ipvswire.ParseEntry(set.kind, objects[i].ID.Name)
		if err != nil {
			return err
		}
		set.entries = append(set.entries, entry)
		sets[name] = set
	}
	return nil
}

// The hooks of IPVS mode with the tables that have rules there.
var (
	atMangleOutput   = iptCall{"output", "mangle", "OUTPUT"}
	atNATOutput      = iptCall{"output", "nat", "OUTPUT"}
	atFilterOutput   = iptCall{"output", "filter", "OUTPUT"}
	atNATPrerouting  = iptCall{"prerouting", "nat", "PREROUTING"}
	atFilterInput    = iptCall{"input", "filter", "INPUT"}
	atFilterForward  = iptCall{"forward", "filter", "FORWARD"}
	atNATPostrouting = iptCall{"postrouting", "nat", "POSTROUTING"}
)

// ways follows a packet through the hooks. IPVS takes incoming packets at the end of hook input, and the node's own
// packets in hook output, after tables mangle and nat and before table filter. Packets that it translates start again
// at hook output, unless the endpoint is the node itself. They skip table nat there, because nat decides only once
// about a destination.
func (r *ipvsRules) ways(p packet) ([]way, error) {
	start := []iptBranch{{src: p.Src, dst: p.Dst, protocol: p.Protocol, in: p.In, verdict: Untouched, probability: 1}}
	w := iptWalk{rules: r.iptRules}
	var ended, sent []iptBranch
	if p.In == "" {
		taken, passed := r.balanced(&w, "output", w.calls(start, atMangleOutput, atNATOutput))
		toSelf, onward := r.route(taken)
		here, others := r.route(w.calls(append(toSelf, passed...), atFilterOutput, atNATPostrouting))
		for i := range here {
			here[i].in = loopback
		}
		ended, sent = append(w.calls(here, atFilterInput), others...), onward
	} else {
		here, others := r.route(w.calls(start, atNATPrerouting))
		taken, passed := r.balanced(&w, "input", w.calls(here, atFilterInput))
		toSelf, onward := r.route(taken)
		others = w.calls(others, atFilterForward, atNATPostrouting)
		ended, sent = slices.Concat(toSelf, passed, others), onward
	}
	ended = append(ended, w.calls(sent, atMangleOutput, atFilterOutput, atNATPostrouting)...)
	return merged(ended), w.err
}

// balanced passes packets to their virtual servers. It returns the packets that IPVS took, and those without a virtual
// server.
func (r *ipvsRules) balanced(w *iptWalk, hook string, all []iptBranch) (taken, passed []iptBranch) {
	for _, b := range all {
		server := r.servers[service.Frontend{Addr: b.dst.Addr(), Port: b.dst.Port(), Protocol: b.protocol}]
		if b.ended() || server == nil {
			passed = append(passed, b)
			continue
		}
		choice, err := choiceOf(server)
		if err != nil && w.err == nil {
			w.err = err
		}
		b.steps = append(slices.Clip(b.steps), Step{Hook: hook, Table: tableIPVS, Chain: "virtual server", Text: serverText(server)})
		b.scheduler, b.how = server.Scheduler, choice.how
		for _, one := range choice.reals {
			got := b
			got.dst, got.verdict, got.translated = one.Addr, Delivered, true
			got.probability *= float64(one.Weight) / float64(choice.sum)
			got.steps = append(slices.Clip(b.steps), Step{Hook: hook, Table: tableIPVS, Chain: "real server", Text: realText(server, one)})
			taken = append(taken, got)
		}
		if choice.refuses {
			b.verdict = Refused
			b.probability *= float64(choice.sum-choice.weights) / float64(choice.sum)
			taken = append(taken, b)
		}
	}
	return taken, passed
}

// tableIPVS stands for IPVS in steps.
const tableIPVS = "ipvs"

// serverText returns a virtual server as ipvsadm --save prints it.
func serverText(s *ipvsrender.Server) string {
	text := fmt.Sprintf("-A %s -s %s", frontendText(s), s.Scheduler)
	if s.Flags&ipvswire.Persistent != 0 {
		text += fmt.Sprintf(" -p %d", s.Timeout)
	}
	var flags []string
	if s.Flags&ipvswire.SchedulerFlag1 != 0 {
		flags = append(flags, s.Scheduler+"-fallback")
	}
	if s.Flags&ipvswire.SchedulerFlag2 != 0 {
		flags = append(flags, s.Scheduler+"-port")
	}
	if len(flags) > 0 {
		text += " -b " + strings.Join(flags, ",")
	}
	return text
}

func frontendText(s *ipvsrender.Server) string {
	option := map[string]string{"tcp": "-t", "udp": "-u", "sctp": "--sctp-service"}[s.Protocol.String()]
	return option + " " + netip.AddrPortFrom(s.Addr, s.Port).String()
}

func realText(s *ipvsrender.Server, r ipvswire.Real) string {
	return fmt.Sprintf("-a %s -r %s -m -w %d", frontendText(s), r.Addr, r.Weight)
}
