// SPDX-License-Identifier: Apache-2.0

package cleaner

import (
	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/service"
)

// judge reports whether to delete a flow, and why.
func (s *sweep) judge(f *flow) (why blame, stale bool) {
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	if why, stale = s.reason(f); stale && !f.Translated() {
		s.stray(f, &why)
	}
	return why, stale
}

// reason returns the first of these reasons to delete a flow:
//
//  1. The flow is unanswered, and its client is not allowed.
//  2. It is a UDP flow, and its Service does not lead to its endpoint.
//  3. The flow is unanswered, and met no rule.
//  4. The flow is answered and met no rule, or it began with an answer to packets that met no rule.
//  5. Its endpoint was removed, and the drain deadline has passed.
//
// Reasons 2 and 3 do not apply if the newest view of a Service leads to the endpoint, because the kernel's rules may
// match this view already.
func (s *sweep) reason(f *flow) (why blame, stale bool) {
	h, o := s.subject(f)
	if o != nil && !h.applied.admits(o, f.From.Addr()) {
		return blame{by: h.key}, true
	}
	if f.Protocol == unix.IPPROTO_UDP {
		why.by, stale = s.outdated(f)
	}
	if !stale && o != nil && !f.Translated() {
		why.by, stale = h.key, true
	}
	if stale && !s.table.expects(f) {
		return why, true
	}
	if h, reversed := s.bypasses(f); h != nil {
		return blame{by: h.key, reversed: reversed}, true
	}
	why.by, why.leaver = s.drained(f)
	return why, why.leaver != nil
}

// outdated reports whether a UDP flow is stale, and the Service whose change made it stale.
//
// A frontend with an address takes precedence over a node port with the same number, as in the kernel's rules.
func (s *sweep) outdated(f *flow) (by service.Key, stale bool) {
	to := f.Destination()
	by, changed := s.changed(to)
	if s.table.owner(to) == nil {
		number := nodePort(to.Port, to.Protocol)
		if whose, numberChanged := s.changed(number); (changed || numberChanged) && s.onNode(to.Addr) {
			if to = number; !changed {
				by, changed = whose, true
			}
		}
	}
	return by, changed && s.table.isStale(f, to)
}

// changed reports whether to judge the flows to a UDP destination, and the Service that is the reason.
func (s *sweep) changed(d destination) (by service.Key, is bool) {
	if by, is = s.todo.flows[d]; !is && s.todo.all {
		if h := s.table.owner(d); h != nil {
			return h.key, true
		}
	}
	return by, is
}

// The rules of nftables mode judge a connection once, when it begins (ADR 6). If a client began before there was a rule
// for its destination, and repeats datagrams without an answer or the same SYN, the rules do not reject its packets.
// The same applies to clients that the source ranges of a Service no longer allow, or that a Service denies. So a sweep
// deletes these connections, and the rules judge their next packets.
//
// A sweep deletes only unanswered connections. Answered ones continue, as with kube-proxy, whose rules judge each
// packet until the first answer.

// subject returns the opening to check for an unanswered connection, and its Service; otherwise nil.
func (s *sweep) subject(f *flow) (*holding, *opening) {
	if f.Replied || !s.todo.all && len(s.todo.checks) == 0 {
		return nil, nil
	}
	to := f.Destination()
	h, o := s.check(to)
	if o == nil {
		h, o = s.check(destination{Addr: to.Addr})
	}
	if o == nil && !to.Addr.IsLoopback() && s.nodePort(to) {
		h, o = s.check(nodePort(to.Port, to.Protocol))
	}
	return h, o
}

// check returns the opening to check at a destination, and its Service, or nil.
func (s *sweep) check(d destination) (*holding, *opening) {
	by, is := s.todo.checks[d]
	if !is && !s.todo.all {
		return nil, nil
	}
	for _, h := range s.table.claims[d] {
		if o := h.applied.at(d); o != nil && (s.todo.all || h.key == by) {
			return h, o
		}
	}
	return nil, nil
}

// bypasses returns the Service of an answered flow that met no rule, or nil. Such a flow is either a connection to a
// ClusterIP, where only the Service answers, or it began with an answer to packets that met no rule (reversed): the
// client's next packets belong to this flow, so they are never translated. No host sends first from a frontend, except
// the host itself: a node port, or an external IP that is an address of the host, may be a port of a process.
// Connections to an external IP remain, because another host may have this address.
func (s *sweep) bypasses(f *flow) (by *holding, reversed bool) {
	if f.Translated() {
		return nil, false
	}
	if h, o := s.exclusive(f.Destination()); o != nil && o.internal && f.Replied && !s.onHost(o.Addr) {
		return h, false
	}
	if h, o := s.exclusive(f.Source()); o != nil && (o.internal || !s.onHost(o.Addr)) {
		return h, true
	}
	return nil, false
}

// exclusive returns the opening to check at a destination, and its Service, or nil if others may answer there.
func (s *sweep) exclusive(d destination) (*holding, *opening) {
	h, o := s.check(d)
	if o == nil {
		if h, o = s.check(destination{Addr: d.Addr}); o != nil {
			o = h.applied.at(d)
		}
	}
	if o == nil || o.lent {
		return nil, nil
	}
	return h, o
}

// nodePort reports whether a flow to a destination is one to a node port: the address has node ports, and no Service
// owns the destination itself, which takes precedence in the kernel's rules. Services without a view count, too.
func (s *sweep) nodePort(to destination) bool {
	return s.onNode(to.Addr) && s.table.owner(to) == nil && (s.owned == nil || !s.owned(to))
}
