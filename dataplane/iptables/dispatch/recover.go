package dispatch

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// Path returns the chains that packets pass on their way to an element, in their order. Roots from
// which tail rules lead there are among them: such a rule may come with the element.
func (l *Layout) Path(id dataplane.ID) []dataplane.ID {
	t := l.trees[id.Container]
	if t == nil || !t.holds(id.Name) {
		return nil
	}
	path := append(l.above(t), t.root.id)
	if isTail(id.Name) || t.trie.root == nil {
		return path
	}
	if t.guarded() {
		path = append(path, t.container.chainID(string(t.container.appendChain(nil, t.guard()))))
	}
	key := id.Name[1:]
	for n := t.trie.root; n.rank() > 0; {
		child, rank := n, n.rank()
		for child.rank() == rank {
			n = child
			child = *n.way(key)
		}
		p := prefix{key: child.key, bits: n.bit + 1}
		path = append(path, t.container.chainID(string(t.container.appendChain(nil, p))))
		n = child
	}
	return path
}

// Recover returns the tree elements in chains that were read from the kernel, and the chains that
// do not belong to a container. It leaves out tail rules, whose names no rule shows.
func (l *Layout) Recover(read []*dataplane.Object) (elements, others []*dataplane.Object) {
	for _, o := range read {
		at := slices.IndexFunc(l.order, func(t *tree) bool { return t.container.composes(o.ID) })
		if at < 0 {
			others = append(others, o)
		} else {
			elements = l.order[at].recover(elements, o)
		}
	}
	return elements, others
}

// composes reports whether a chain is the container's root or has a name that the container gives
// to chains below it.
func (c Container) composes(id dataplane.ID) bool {
	return id.Container == c.Table &&
		(id.Name == c.Chain || strings.HasPrefix(id.Name, chainPrefix+string(c.Letter)+"-"))
}

func (t *tree) recover(elements []*dataplane.Object, o *dataplane.Object) []*dataplane.Object {
	for line := range strings.SplitSeq(o.Body, "\n") {
		name, target, ok := t.parse(line)
		if !ok || t.container.composes(t.container.chainID(target)) {
			continue // a jump to a chain below
		}
		element := &dataplane.Object{
			ID: dataplane.ID{Container: t.container.Name(), Name: name}, Kind: dataplane.Element, Body: line,
		}
		if strings.HasPrefix(target, "KUBE-") {
			element.Links = dataplane.LinkTo(t.container.chainID(target))
		}
		elements = append(elements, element)
	}
	return elements
}

// parse returns the name of the element that a rule is, and the rule's target. An element's rule
// matches one address, one protocol and port, or both, and nothing else. In BySource containers,
// further matches do not count, nor do those of the destination in ByPort containers.
func (t *tree) parse(line string) (name, target string, ok bool) {
	match, target, found := strings.Cut(line, " -j ")
	if !found {
		return "", "", false
	}
	target, _, _ = strings.Cut(target, " ")
	var addr netip.Addr
	var protocol service.Protocol
	var port uint16
	hasProtocol, hasPort := false, false
	words := strings.Fields(withoutComment(match))
	for ; len(words) >= 2; words = words[2:] {
		flag, value := words[0], words[1]
		switch flag {
		case "!":
			if t.container.Shape != ByPort || len(words) < 3 || words[1] != "-d" {
				return "", "", false
			}
			words = words[1:]
		case "--dst-type":
			if t.container.Shape != ByPort {
				return "", "", false
			}
		case "-d", "-s":
			if (flag == "-s") != (t.container.Shape == BySource) || t.container.Shape == ByPort {
				continue
			}
			p, err := netip.ParsePrefix(value)
			if err != nil || p.Bits() != p.Addr().BitLen() {
				return "", "", false
			}
			addr = p.Addr()
		case "-p":
			for _, known := range protocols {
				if known.String() == value {
					protocol, hasProtocol = known, true
				}
			}
		case "--dport":
			number, err := strconv.ParseUint(value, 10, 16)
			if err != nil {
				return "", "", false
			}
			port, hasPort = uint16(number), true
		case "-m":
		default:
			return "", "", false
		}
	}
	switch {
	case t.container.Shape == BySource:
		name = SourceKey(addr)
	case !hasProtocol || !hasPort:
		return "", "", false
	case t.container.Shape == ByPort:
		name = PortKey(protocol, port)
	default:
		name = DestinationKey(addr, protocol, port)
	}
	return name, target, len(words) == 0 && t.holds(name) && addr.IsValid() != (t.container.Shape == ByPort)
}

// withoutComment removes the comment from a rule's matches.
func withoutComment(match string) string {
	const flag = ` -m comment --comment `
	before, after, found := strings.Cut(match, flag)
	if !found {
		return match
	}
	if quoted, ok := strings.CutPrefix(after, `"`); ok {
		_, after, _ = strings.Cut(quoted, `"`)
		return before + after
	}
	_, after, _ = strings.Cut(after, " ")
	return before + " " + after
}
