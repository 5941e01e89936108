// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"slices"
	"strings"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/iptables/rules"
	"github.com/sluice-proxy/sluice/service"
)

// Path returns the chains that packets pass on their way to an element, in their order. They include
// roots whose tail rules jump there, because such a rule may be added together with the element.
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

// Recover returns the tree elements in chains that were read from the kernel, and the chains that do
// not belong to a container. It leaves out tail rules, because their names are not in the rules.
func (l *Layout) Recover(read []*dataplane.Object) (elements, others []*dataplane.Object) {
	for _, o := range read {
		at := slices.IndexFunc(l.order, func(t *tree) bool { return t.container.Composes(o.ID) })
		if at < 0 {
			others = append(others, o)
		} else {
			elements = l.order[at].recover(elements, o)
		}
	}
	return elements, others
}

// Composes reports whether a chain is the container's root or has a name that the container gives
// to chains below it.
func (c Container) Composes(id dataplane.ID) bool {
	return id.Container == c.Table &&
		(id.Name == c.Chain || strings.HasPrefix(id.Name, chainPrefix+string(c.Letter)+"-"))
}

func (t *tree) recover(elements []*dataplane.Object, o *dataplane.Object) []*dataplane.Object {
	for line := range strings.SplitSeq(o.Body, "\n") {
		name, target, ok := t.parse(line)
		if !ok || t.container.Composes(t.container.chainID(target)) {
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

// parse returns the element's name for a rule, and the rule's target. An element's rule matches one
// address, one protocol and port, or both, and nothing else. Further matches are ignored in BySource
// containers, and so are destination matches in ByPort containers.
func (t *tree) parse(line string) (name, target string, ok bool) {
	rule := rules.Parse(line)
	if rule.Target.Name == "" || rule.Target.Goto {
		return "", "", false
	}
	var key Key
	for _, m := range rule.Matches {
		for _, o := range m.Options {
			if !t.container.read(o, &key) {
				return "", "", false
			}
		}
	}
	switch shape := t.container.Shape; {
	case shape == BySource:
		name = SourceKey(key.Addr)
	case !key.HasPort || key.Port == 0:
		return "", "", false
	case shape == ByPort:
		name = PortKey(key.Protocol, key.Port)
	default:
		name = DestinationKey(key.Addr, key.Protocol, key.Port)
	}
	return name, rule.Target.Name, t.holds(name) && key.Addr.IsValid() != (t.container.Shape == ByPort)
}

// read fills a field of the key from an option. It returns false for an option that elements do not have.
func (c Container) read(o rules.Option, key *Key) bool {
	if o.Not {
		return o.Name == "-d" && c.Shape == ByPort
	}
	switch o.Name {
	case "--comment":
		return true
	case "--dst-type":
		return c.Shape == ByPort
	case "-s", "-d":
		if c.Shape == ByPort || (o.Name == "-s") != (c.Shape == BySource) {
			return true
		}
		p, err := o.Prefix()
		key.Addr = p.Addr()
		return err == nil && p.IsSingleIP()
	case "-p":
		key.Protocol, key.HasPort = service.ParseProtocol(o.Arg(0))
		return key.HasPort || c.Shape == BySource
	case "--dport":
		low, high, err := o.Ports()
		key.Port = low
		return err == nil && low == high
	}
	return false
}
