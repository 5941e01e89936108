// SPDX-License-Identifier: Apache-2.0

package cleaner

import (
	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/service"
)

// judge reports whether a flow is to be deleted, and why.
func (s *sweep) judge(f *flow) (why blame, stale bool) {
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	if why, stale = s.reason(f); stale && !f.Translated() {
		s.stray(f, &why)
	}
	return why, stale
}

// reason returns why a flow is to be deleted, by the first of these that holds:
//
//  1. It is unanswered, and its client is not allowed.
//  2. It is of UDP, and its Service leads elsewhere.
//  3. It is unanswered, and no rule saw it.
//  4. No rule saw it, although it is answered, or the packets that it answers.
//  5. Its endpoint has left, and the drain deadline has passed.
//
// If the last view of a Service leads there, 2 and 3 do not hold: the kernel may follow it already.
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

// outdated reports whether a UDP flow is stale, and whose change made it so.
//
// A destination with its own address takes precedence over a node port with the same
// number, as in the kernel's rules.
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

// changed reports whether flows to a destination of UDP are to be judged, and because of which Service.
func (s *sweep) changed(d destination) (by service.Key, is bool) {
	if by, is = s.todo.flows[d]; !is && s.todo.all {
		if h := s.table.owner(d); h != nil {
			return h.key, true
		}
	}
	return by, is
}

// The rules of nftables mode judge a connection once, when it begins (ADR 6). A client that
// began before there was a rule for its destination would not be refused as long as it goes
// on: it sends datagrams without an answer, or the same SYN again. The same is true of a
// client that the source ranges of a Service no longer allow, or that a Service denies. So these connections are
// deleted, and their next packets judged.
//
// Only unanswered connections are deleted. Answered ones go on, as with kube-proxy, whose
// rules judge each packet until there is an answer.

// subject returns the opening whose check applies to a connection, and its Service, if the connection is unanswered; nil
// otherwise.
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

// check returns the opening to check at a destination, and its Service; nil if there is none.
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

// bypasses returns the Service of a flow that is answered and met no rule; nil of any other one. Either it is a
// connection to a ClusterIP, where only the Service answers, or it consists of answers to packets that met no rule
// (reversed): address translation would never see the client's next packets, because they belong to it. No host sends
// first from a frontend, except for the host itself: a node port, or an external IP that is an address of the host, may
// be a process's own port. A host with the external IP may be elsewhere, so connections to it are left alone.
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

// exclusive returns the opening to check at a destination, and its Service, unless others may answer there.
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

// nodePort reports whether a flow to a destination asks for a node port: the address has node ports, and no Service has
// the destination itself, which takes precedence in the kernel's rules. A Service whose view has not arrived yet counts.
func (s *sweep) nodePort(to destination) bool {
	return s.onNode(to.Addr) && s.table.owner(to) == nil && (s.owned == nil || !s.owned(to))
}
