// SPDX-License-Identifier: Apache-2.0

package render

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/nftables/rules"
	"github.com/sluice-proxy/sluice/internal/netlink"
	"github.com/sluice-proxy/sluice/service"
)

// Text prints objects as rules for "nft -f", with the same result as writing the objects. They
// must include the table and the definition of each set that has elements. Text returns an error
// for an object that the renderer does not render.
func Text(family service.Family, objects []dataplane.Object) (string, error) {
	d := dialects[family]
	sorted := slices.Clone(objects)
	slices.SortFunc(sorted, func(a, b dataplane.Object) int { return a.ID.Compare(b.ID) })
	elements := make(map[string][]string)
	blocks := map[string]*strings.Builder{ContainerSet: {}, ContainerChain: {}}
	for i := range sorted { // elements come first
		o := &sorted[i]
		if name, ok := SetOf(o.ID.Container); ok {
			text, err := elementText(d, name, o)
			if err != nil {
				return "", err
			}
			elements[name] = append(elements[name], text)
			continue
		}
		out := blocks[o.ID.Container]
		if out == nil {
			continue
		}
		word, lines, err := definitionText(d, o)
		if err != nil {
			return "", fmt.Errorf("%s %s: %w", o.ID.Container, o.ID.Name, err)
		}
		if all := elements[o.ID.Name]; o.ID.Container == ContainerSet && len(all) > 0 {
			lines = append(lines, fmt.Sprintf("elements = { %s }", strings.Join(all, ",\n\t\t\t     ")))
		}
		lines = append([]string{"\t" + word + " " + o.ID.Name + " {"}, lines...)
		out.WriteString(strings.Join(lines, "\n\t\t") + "\n\t}\n")
	}
	return fmt.Sprintf("table %s %s {\n\tcomment %q\n%s%s}\n", d.Name, TableName, TableComment, blocks[ContainerSet], blocks[ContainerChain]), nil
}

// definitionText returns nft's keyword for a chain or a set, and the lines between its braces. With an error, the lines
// are a description.
func definitionText(d *dialect, o *dataplane.Object) (word string, lines []string, err error) {
	if o.ID.Container == ContainerSet {
		return setLines(d, o.ID.Name, o.Body)
	}
	lines, err = chainLines(d, o)
	return ContainerChain, lines, err
}

// setLines prints the definition of a set, if the attributes end with the definition for its name.
func setLines(d *dialect, name, attrs string) (word string, lines []string, err error) {
	s, err := definition(name)
	if err == nil && !strings.HasSuffix(attrs, string(s.body(d))) {
		err = errors.New("another definition than that of its name")
	}
	if err != nil {
		return "set", []string{"a definition of another program or release"}, err
	}
	word, lines = "set", []string{"type " + s.types(d, s.key)}
	switch {
	case s.verdict:
		word, lines[0] = "map", lines[0]+" : verdict"
	case s.data != nil:
		word, lines[0] = "map", "typeof "+s.typeofs(d, s.key)+" : "+s.typeofs(d, s.data)
	}
	if s.remembers > 0 {
		lines = append(lines, fmt.Sprintf("size %d", s.remembers), "flags dynamic,timeout")
	}
	if s.ranges {
		lines = append(lines, "flags interval")
	}
	if s.counts {
		lines = append(lines, "counter")
	}
	return word, lines, nil
}

// chainLines prints the hook of a chain, if any, and its rules. The error is about the first rule without a text.
func chainLines(d *dialect, o *dataplane.Object) (lines []string, err error) {
	c := rules.DecodeChain(o.ID.Name, []byte(o.Body))
	if c.Base != nil {
		lines = append(lines, c.Base.Text())
	}
	for i := range c.Rules {
		text, without := ruleText(d, &c.Rules[i])
		lines, err = append(lines, text), cmp.Or(err, without)
	}
	return lines, err
}

// ruleText prints a rule. With an error, the text is a description.
func ruleText(d *dialect, r *rules.Rule) (string, error) {
	text, err := r.Text(d.Family)
	if err != nil {
		text = fmt.Sprintf("a rule of %d bytes, of another program or release", len(r.Encode(nil)))
	}
	return text, err
}

func (s set) types(d *dialect, fields []field) string {
	addr := "ipv4_addr"
	if d.Family == service.IPv6 {
		addr = "ipv6_addr"
	}
	return joined(fields, map[field]string{
		fieldDaddr: addr, fieldSaddr: addr, fieldProtocol: "inet_proto", fieldPort: "inet_service",
	})
}

func (s set) typeofs(d *dialect, fields []field) string {
	return joined(fields, map[field]string{
		fieldDaddr: d.Name + " daddr", fieldSaddr: d.Name + " saddr", fieldProtocol: "meta l4proto",
		fieldPort: "th dport", fieldSlot: "numgen random mod 16",
	})
}

func joined(fields []field, names map[field]string) string {
	var texts []string
	for _, f := range fields {
		texts = append(texts, names[f])
	}
	return strings.Join(texts, " . ")
}

// elementText prints one element of a set. With an error, the text is a description.
func elementText(d *dialect, name string, o *dataplane.Object) (text string, err error) {
	s, err := definition(name)
	if err == nil {
		text, err = keyText(d, s, o.ID.Name)
	}
	body := []byte(o.Body)
	if comment := rules.Comment(netlink.Find(body, unix.NFTA_SET_ELEM_USERDATA).Data); comment != "" {
		text += fmt.Sprintf(" comment %q", comment)
	}
	data := netlink.Find(body, unix.NFTA_SET_ELEM_DATA).Data
	if verdict, ok := rules.VerdictIn(data); ok {
		text += " : " + verdict.Text()
	} else if data != nil && err == nil {
		var value string
		value, err = fieldsText(d, s.data, netlink.Find(data, unix.NFTA_DATA_VALUE).Data)
		text += " : " + value
	}
	if err != nil {
		return fmt.Sprintf("an element with the key %x, of another release", o.ID.Name), fmt.Errorf("element %x of %s: %w", o.ID.Name, name, err)
	}
	return text, nil
}

// keyText prints an element's key. It prints a range as a prefix.
func keyText(d *dialect, s set, key string) (string, error) {
	if !s.ranges {
		return fieldsText(d, s.key, []byte(key))
	}
	half := len(key) / 2
	first, err := fieldsText(d, s.key, []byte(key[:half]))
	if err != nil {
		return "", err
	}
	last := []byte(key[half:])
	from, to := []byte(key[half-d.AddrBytes:half]), last[len(last)-d.AddrBytes:]
	bits := 0
	for bits < len(from)*8 && (from[bits/8]^to[bits/8])&(0x80>>(bits%8)) == 0 {
		bits++
	}
	if bits == len(from)*8 {
		return first, nil
	}
	return first + "/" + strconv.Itoa(bits), nil
}

// fieldsText prints a concatenation.
func fieldsText(d *dialect, fields []field, b []byte) (string, error) {
	if len(b) != keyBytes(d, fields) {
		return "", fmt.Errorf("%d bytes, must be %d", len(b), keyBytes(d, fields))
	}
	var texts []string
	for _, f := range fields {
		part := b[:f.bytes(d)]
		b = b[len(part):]
		switch f {
		case fieldProtocol:
			texts = append(texts, rules.ProtocolText(part[0]))
		case fieldPort:
			texts = append(texts, strconv.Itoa(int(binary.BigEndian.Uint16(part))))
		case fieldSlot:
			texts = append(texts, strconv.Itoa(int(binary.NativeEndian.Uint32(part))))
		default:
			addr, _ := netip.AddrFromSlice(part)
			texts = append(texts, addr.String())
		}
	}
	return strings.Join(texts, " . "), nil
}

// ElementText prints one element of a set or map: without a body only the key, as for "nft delete element".
func ElementText(family service.Family, element *dataplane.Object) (string, error) {
	name, ok := SetOf(element.ID.Container)
	if !ok {
		return "", fmt.Errorf("%s %q is no element", element.ID.Container, element.ID.Name)
	}
	return elementText(dialects[family], name, element)
}

// ElementID returns the identity of an element, by its set and the bytes of its key.
func ElementID(set, key string) dataplane.ID {
	return dataplane.ID{Container: elementsOf + set, Name: key}
}

// IsClientsMap reports whether a map of this name remembers clients.
func IsClientsMap(name string) bool { return strings.HasPrefix(name, clientsMaps.name+"-") }

// AffinityEntry is the entry of a client in a map of clients.
type AffinityEntry struct {
	// Endpoint identifies the endpoint; it is the element's data.
	Endpoint netip.Addr
	// Left is the time until the entry expires.
	Left time.Duration
}

// IsLiveSet reports whether a set of this name has the endpoints of a Service with affinity. A
// remembered client keeps its endpoint as long as that is in the set.
func IsLiveSet(name string) bool { return strings.HasPrefix(name, liveSets.name+"-") }
