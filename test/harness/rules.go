// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"fmt"
	"net/netip"
	"os/exec"
	"regexp"
	"strings"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-proxy/sluice/test/netnstest"
	"github.com/sluice-proxy/sluice/test/ruleset"
)

// Rules are the lines of everything in a host's packet filter, both families: what belongs to iptables as iptables-save
// prints it, behind the program and the table, and everything else as nft lists it. They do not show a write that
// changes nothing: see [Monitor].
type Rules []string

// SaveRules reads the rules of a host.
func SaveRules(h *Host) (Rules, error) {
	var r Rules
	for _, program := range []string{"iptables-save", "ip6tables-save"} {
		listing, err := printed(h, program)
		if err != nil {
			return nil, err
		}
		for table, line := range ruleset.IPTables(listing) {
			r = append(r, program+" "+table+" "+line)
		}
	}
	listing, err := printed(h, "nft", "--stateless", "list", "ruleset")
	return append(r, ruleset.NFT(listing, func(table string) bool { return !ruleset.OfIPTables(table) })...), err
}

// printed runs a program inside a host and returns what it prints.
func printed(h *Host, program string, args ...string) (string, error) {
	output, err := netnstest.Output(h, exec.Command(program, args...))
	if err != nil {
		err = fmt.Errorf("%s %s in netns %s: %w", program, strings.Join(args, " "), h.Name(), err)
	}
	return string(output), err
}

// ownChain matches rules in iptables chains that belong to one Service, by kube-proxy's naming: a
// kind and sixteen characters. Chains that several Services share are written whenever one of them
// changes.
var ownChain = regexp.MustCompile(`^\S+ nat -A (KUBE-(?:SVC|SVL|EXT|FW|SEP)-[A-Z2-7]{16})\b`)

// Own returns an expression that matches each change (see [Commit]) of something that belongs to
// one Service alone: a chain in iptables, or an element with one of its addresses or node ports in
// nftables.
func (r Rules) Own(service *corev1.Service) (*regexp.Regexp, error) {
	keys, err := ownKeys(service)
	if err != nil {
		return nil, err
	}
	own := []string{`element \S+ \S+ \S+ (?:` + strings.Join(keys, "|") + ")"}
	for _, line := range r {
		found := ownChain.FindStringSubmatch(line)
		if found != nil && strings.Contains(line, testNamespace+"/"+service.Name+":") {
			own = append(own, `(?:chain|rule) ip6? nat `+found[1])
		}
	}
	return regexp.Compile(`^\w+ (?:` + strings.Join(own, "|") + `)(?: |$)`)
}

// ownKeys returns the beginnings of the keys of a Service's elements: its addresses, and its
// protocols and node ports.
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
