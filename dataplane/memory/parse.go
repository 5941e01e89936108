package memory

import (
	"net/netip"
	"strconv"
	"strings"

	"github.com/sluice-proxy/sluice/dataplane/iptables"
	"github.com/sluice-proxy/sluice/service"
)

// dialect is what the meaning of a rule's words depends on.
type dialect struct {
	family service.Family
	table  iptables.Table
}

// parser reads one rule as iptables does: the tool's own options first, then
// those of the protocol, the matches and the target that were loaded before.
type parser struct {
	dialect
	words []string
	rule  *rule
	// inverted is set by a "!" until the next option takes it.
	inverted bool
	seen     map[string]bool
}

// parseRule gives the rule that the words behind "-A CHAIN" describe. The error
// is in the words of the tools.
func parseRule(d dialect, words []string) (*rule, error) {
	p := &parser{dialect: d, words: words, rule: &rule{}, seen: make(map[string]bool)}
	for len(p.words) > 0 {
		if err := p.option(); err != nil {
			return nil, err
		}
	}
	if p.inverted {
		return nil, refusef("nothing appropriate following !")
	}
	for _, m := range p.rule.matches {
		if err := m.complete(p.rule); err != nil {
			return nil, err
		}
	}
	if p.rule.target != nil {
		if err := p.rule.target.complete(p.rule); err != nil {
			return nil, err
		}
	}
	p.rule.text = p.rule.print()
	return p.rule, nil
}

// value takes the word behind an option.
func (p *parser) value(option string) (string, error) {
	if len(p.words) == 0 {
		return "", refusef("option %q requires an argument", option)
	}
	value := p.words[0]
	p.words = p.words[1:]
	return value, nil
}

// invert tells whether a "!" stood before the option at hand, and takes it.
func (p *parser) invert() bool {
	inverted := p.inverted
	p.inverted = false
	return inverted
}

func (p *parser) option() error {
	word := p.words[0]
	p.words = p.words[1:]
	if word == "!" {
		if p.inverted {
			return refusef("multiple consecutive ! not allowed")
		}
		p.inverted = true
		return nil
	}
	if !strings.HasPrefix(word, "-") {
		return refusef("Bad argument `%s'", word)
	}
	known, err := p.ownOption(word)
	if !known && err == nil {
		known, err = p.loadedOption(word)
	}
	switch {
	case err != nil:
		return err
	case !known:
		return refusef("unknown option %q", word)
	case p.inverted:
		return refusef("unexpected ! flag before %s", word)
	}
	return nil
}

// ownOption handles the options of the tool itself. All of them take a value,
// and all but -m stand in a rule at most once.
func (p *parser) ownOption(word string) (bool, error) {
	var handle func(string) error
	switch word {
	case "-s", "--source":
		handle = func(v string) error { return p.address(&p.rule.src, v) }
	case "-d", "--destination":
		handle = func(v string) error { return p.address(&p.rule.dst, v) }
	case "-i", "--in-interface":
		handle = func(v string) error { return p.iface(&p.rule.in, v) }
	case "-o", "--out-interface":
		handle = func(v string) error { return p.iface(&p.rule.out, v) }
	case "-p", "--protocol":
		handle = p.protocol
	case "-m", "--match":
		handle = p.loadMatch
	case "-j", "--jump":
		handle = p.loadTarget
	default:
		return false, nil
	}
	if p.seen[word] && word != "-m" && word != "--match" {
		return true, refusef("multiple %s flags not allowed", word)
	}
	p.seen[word] = true
	value, err := p.value(word)
	if err != nil {
		return true, err
	}
	return true, handle(value)
}

// loadedOption offers the option to what was loaded before it. As in the tools,
// a port option without -m loads the match of the protocol.
func (p *parser) loadedOption(word string) (bool, error) {
	if p.rule.target != nil {
		if known, err := p.rule.target.option(p, word); known {
			return true, err
		}
	}
	for _, m := range p.rule.matches {
		if known, err := m.option(p, word); known {
			return true, err
		}
	}
	if p.rule.protocol.set && !p.rule.protocol.inverted && !p.loaded(p.rule.protocol.protocol.String()) {
		m := &portMatch{protocol: p.rule.protocol.protocol}
		if known, err := m.option(p, word); known {
			p.rule.matches = append(p.rule.matches, m)
			return true, err
		}
	}
	return false, nil
}

// loaded tells whether the port match of a protocol is there already.
func (p *parser) loaded(protocol string) bool {
	for _, m := range p.rule.matches {
		if ports, ok := m.(*portMatch); ok && ports.protocol.String() == protocol {
			return true
		}
	}
	return false
}

// address reads ADDRESS[/BITS]. The tools also take host names and lists; both
// are refused here.
func (p *parser) address(m *addressMatch, value string) error {
	text := value
	if !strings.Contains(text, "/") {
		text += "/" + strconv.Itoa(p.family.Bits())
	}
	prefix, err := netip.ParsePrefix(text)
	if err != nil || service.FamilyOf(prefix.Addr()) != p.family {
		return refusef("host/network `%s' not found", value)
	}
	inverted := p.invert()
	if prefix.Bits() == 0 && !inverted {
		return nil // matches everything, and is not printed
	}
	*m = addressMatch{prefix: prefix.Masked(), inverted: inverted}
	return nil
}

// ifnameMax is IFNAMSIZ of the kernel without the final NUL.
const ifnameMax = 15

func (p *parser) iface(m *interfaceMatch, value string) error {
	if len(value) > ifnameMax {
		return refusef("interface name `%s' must be shorter than %d characters", value, ifnameMax+1)
	}
	if value == "" {
		return refusef("Empty interface is likely to be undesired")
	}
	*m = interfaceMatch{name: value, inverted: p.invert()}
	return nil
}

func (p *parser) protocol(value string) error {
	for _, protocol := range []service.Protocol{service.TCP, service.UDP, service.SCTP} {
		if value == protocol.String() {
			p.rule.protocol = protocolMatch{set: true, protocol: protocol, inverted: p.invert()}
			return nil
		}
	}
	return refusef("unknown protocol %q specified", value)
}

func (p *parser) loadMatch(name string) error {
	m := newMatch(p.dialect, name)
	if m == nil {
		return refusef("Couldn't load match `%s':No such file or directory", name)
	}
	p.rule.matches = append(p.rule.matches, m)
	return nil
}

func (p *parser) loadTarget(name string) error {
	var err error
	p.rule.target, err = newTarget(p.dialect, name)
	return err
}
