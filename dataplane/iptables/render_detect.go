package iptables

// fromLocalPod gives a rule that matches what local pods send, still without
// comment and target. It is false when nothing recognises pods.
func (p *portDraft) fromLocalPod() (rule, bool) {
	detect := p.facts.Detect[p.renderer.family]
	switch {
	case detect.CIDR.IsValid() && detect.CIDR.Bits() == 0:
		// Every sender is a pod. The tools do not print a match of length 0.
		return rule{}, true
	case detect.CIDR.IsValid():
		return rule{source: addrMatch{prefix: detect.CIDR}}, true
	case detect.Interface != "":
		return rule{input: inputMatch{name: detect.Interface}}, true
	default:
		return rule{}, false
	}
}

// notFromLocalPod is the opposite: false when nothing recognises pods, or when
// everything is one.
func (p *portDraft) notFromLocalPod() (rule, bool) {
	match, ok := p.fromLocalPod()
	if !ok || match == (rule{}) {
		return rule{}, false
	}
	match.source.not = match.source.prefix.IsValid()
	match.input.not = match.input.name != ""
	return match, true
}
