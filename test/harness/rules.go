package harness

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

// Rules is everything the packet filter of one namespace holds, both families: what belongs to
// iptables as iptables-save prints it, everything else as nft lists it.
//
// Writing a rule again, even the same one, leaves two traces: its counters start at zero, and it
// has another handle, the kernel's number for it. They show a write that changed no text. Not every
// rule has counters, and they grow back with traffic; handles never come back, but iptables-legacy
// has none. An element of a set leaves no trace at all: see [Monitor].
type Rules struct {
	lines   []string            // every line in order, without counters and handles
	packets map[string]uint64   // by line, of those that count; lines that occur twice are added up
	handles map[string][]uint64 // by what holds them, as at the start of its lines; in order
}

func newRules() Rules {
	return Rules{packets: make(map[string]uint64), handles: make(map[string][]uint64)}
}

// SaveRules reads the rules of a host.
func SaveRules(h *Host) (Rules, error) {
	r := newRules()
	for _, program := range []string{"iptables-save", "ip6tables-save"} {
		text, err := printed(h, program, "-c")
		if err != nil {
			return Rules{}, err
		}
		if err := r.readIPTables(program, string(text)); err != nil {
			return Rules{}, err
		}
	}
	listing, err := printed(h, "nft", "--json", "list", "ruleset")
	if err != nil {
		return Rules{}, err
	}
	if err := r.readNFTables(listing); err != nil {
		return Rules{}, fmt.Errorf("nft's listing of netns %s: %w", h.Name(), err)
	}
	return r, nil
}

// Containing returns the lines that contain the text.
func (r Rules) Containing(text string) []string {
	var found []string
	for _, line := range r.lines {
		if strings.Contains(line, text) {
			found = append(found, line)
		}
	}
	return found
}

// Traces returns how many rules and objects would show a write. If there are none, Untouched proves
// nothing.
func (r Rules) Traces() int {
	count := r.Counted()
	for _, handles := range r.handles {
		count += len(handles)
	}
	return count
}

// Counted returns how many lines have counted packets.
func (r Rules) Counted() int {
	count := 0
	for _, packets := range r.packets {
		if packets > 0 {
			count++
		}
	}
	return count
}

// Untouched returns an error if r, read after before, differs from it except for grown counters.
func (r Rules) Untouched(before Rules) error {
	if !slices.Equal(r.lines, before.lines) {
		return fmt.Errorf("the rules changed:%s", difference(before.lines, r.lines))
	}
	if err := r.countOnFrom(before); err != nil {
		return err
	}
	for holder, was := range before.handles {
		if now := r.handles[holder]; !slices.Equal(was, now) {
			return fmt.Errorf("written again: %s had handles %d, then %d", holder, was, now)
		}
	}
	return nil
}

// Keep returns an error unless everything of before is still there, in the same order and not
// written again. There may be more.
func (r Rules) Keep(before Rules) error {
	if gone := missing(before.lines, r.lines); len(gone) > 0 {
		return fmt.Errorf("lines are gone, or in another order:\n\t- %s", strings.Join(gone, "\n\t- "))
	}
	if err := r.countOnFrom(before); err != nil {
		return err
	}
	for holder, was := range before.handles {
		if now := r.handles[holder]; len(missing(was, now)) > 0 {
			return fmt.Errorf("written again: %s had handles %d, then %d", holder, was, now)
		}
	}
	return nil
}

// Beyond returns the lines that before does not have.
func (r Rules) Beyond(before Rules) []string { return missing(r.lines, before.lines) }

// countOnFrom returns an error when a counter has fallen.
func (r Rules) countOnFrom(before Rules) error {
	var reset []string
	for line, was := range before.packets {
		if now := r.packets[line]; now < was {
			reset = append(reset, fmt.Sprintf("\n\t%d packets, then %d: %s", was, now, line))
		}
	}
	if len(reset) > 0 {
		slices.Sort(reset)
		return fmt.Errorf("%d rules were written again:%s", len(reset), strings.Join(reset, ""))
	}
	return nil
}

// missing returns the members of part that are not in all, in the same order.
func missing[T comparable](part, all []T) []T {
	var gone []T
	for _, member := range part {
		if at := slices.Index(all, member); at >= 0 {
			all = all[at+1:]
		} else {
			gone = append(gone, member)
		}
	}
	return gone
}

// difference lists lines that only one side has, and says so when only their order differs.
func difference(before, after []string) string {
	var text strings.Builder
	for _, line := range before {
		if !slices.Contains(after, line) {
			text.WriteString("\n\t- " + line)
		}
	}
	for _, line := range after {
		if !slices.Contains(before, line) {
			text.WriteString("\n\t+ " + line)
		}
	}
	if text.Len() == 0 {
		return " same lines in another order or number"
	}
	return text.String()
}

// ownChain matches rules in iptables chains that belong to one Service, by kube-proxy's naming: a
// kind and sixteen characters. Chains that several Services share are written whenever one of them
// changes.
var ownChain = regexp.MustCompile(`^\S+ nat -A (KUBE-(?:SVC|SVL|EXT|FW|SEP)-[A-Z2-7]{16})\b`)

// Own returns an expression that matches each change (see [Commit]) of something that belongs to
// one Service alone: a chain in iptables, or an element with one of its addresses or node ports in
// nftables. A Service without rules is an error, because nothing would match.
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
