package harness

import (
	"fmt"
	"net/netip"
	"regexp"
	"strings"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

// ownChain matches rules in iptables chains that belong to one Service, by kube-proxy's naming: a kind and
// sixteen characters. Chains that several Services share are written whenever one of them changes.
var ownChain = regexp.MustCompile(`^\S+ nat -A (KUBE-(?:SVC|SVL|EXT|FW|SEP)-[A-Z2-7]{16})\b`)

// Own returns what matches each change (see [Commit]) to something that belongs to this Service alone:
// a chain of its own in iptables, or an element with one of its addresses or node ports in nftables. The
// rules are those that are in force for it; if it has none, that is an error, because nothing would match.
func (r Rules) Own(service *corev1.Service) (*regexp.Regexp, error) {
	mark := testNamespace + "/" + service.Name + ":"
	var own []string
	elements := false
	for _, line := range r.lines {
		if !strings.Contains(line, mark) {
			continue
		}
		if found := ownChain.FindStringSubmatch(line); found != nil {
			own = append(own, `(?:chain|rule) ip6? nat `+found[1])
		}
		elements = elements || strings.Contains(line, `{"element":`)
	}
	if elements {
		keys, err := ownKeys(service)
		if err != nil {
			return nil, err
		}
		own = append(own, `element \S+ \S+ \S+ (?:`+strings.Join(keys, "|")+")")
	}
	if len(own) == 0 {
		return nil, fmt.Errorf("no rule belongs to service %s alone", service.Name)
	}
	return regexp.Compile(`^\w+ (?:` + strings.Join(own, "|") + `)(?: |$)`)
}

// ownKeys returns how the keys of elements begin that belong to a Service: its addresses; protocols and
// node ports.
func ownKeys(service *corev1.Service) ([]string, error) {
	var keys []string
	for _, text := range service.Spec.ClusterIPs {
		addr, err := netip.ParseAddr(text)
		if err != nil {
			return nil, fmt.Errorf("cluster IP of %s: %w", service.Name, err)
		}
		keys = append(keys, spellKey(addr.AsSlice()))
	}
	for _, port := range service.Spec.Ports {
		if port.NodePort != 0 {
			keys = append(keys, spellKey([]byte{protocolNumbers[port.Protocol], 0, 0, 0, byte(port.NodePort >> 8), byte(port.NodePort), 0, 0}))
		}
	}
	return keys, nil
}

// protocolNumbers are the IP protocols of the tests' Services.
var protocolNumbers = map[corev1.Protocol]byte{corev1.ProtocolTCP: unix.IPPROTO_TCP, corev1.ProtocolUDP: unix.IPPROTO_UDP}
