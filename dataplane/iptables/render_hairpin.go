package iptables

import "github.com/sluice-proxy/sluice/dataplane/iptables/dispatch"

// renderHairpins masquerades each endpoint that may be sent to itself: it would
// otherwise see a packet from its own address, and answer it on a way that does
// not undo the translation. These are the endpoints on this node, and, under
// externalTrafficPolicy Local, all of them, since pods elsewhere that use this
// node as their way in keep their address. The rules name no Service, so that
// those with common endpoints make equal claims.
func (p *portDraft) renderHairpins() {
	everywhere := p.ExternalLocal && p.ExternallyAccessible()
	for _, e := range p.Reachable() {
		if !e.Local && !everywhere {
			continue
		}
		self := host(e.AddrPort.Addr())
		p.element(natHairpin, dispatch.SourceKey(e.AddrPort.Addr()), rule{
			source: self, destination: self, target: chainMarkMasq,
		}, natChain(chainMarkMasq))
	}
}
