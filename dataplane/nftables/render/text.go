package render

import (
	"encoding/binary"
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

// Text prints objects as rules for "nft -f", which produces what the writer produces from the
// objects. The objects must include the table and the definition of each set that has
// elements. An object that the renderer does not make is an error.
func Text(family service.Family, objects []dataplane.Object) (string, error) {
	d := dialects[family]
	sorted := slices.Clone(objects)
	slices.SortFunc(sorted, func(a, b dataplane.Object) int { return a.ID.Compare(b.ID) })
	elements := make(map[string][]string)
	for i := range sorted {
		name, ok := SetOf(sorted[i].ID.Container)
		if !ok {
			continue
		}
		text, err := elementText(d, name, &sorted[i])
		if err != nil {
			return "", err
		}
		elements[name] = append(elements[name], text)
	}
	var out strings.Builder
	fmt.Fprintf(&out, "table %s %s {\n\tcomment %q\n", d.Name, TableName, TableComment)
	for _, container := range []string{ContainerSet, ContainerChain} {
		for i := range sorted {
			o := &sorted[i]
			if o.ID.Container != container {
				continue
			}
			lines, err := blockText(d, o, elements[o.ID.Name])
			if err != nil {
				return "", fmt.Errorf("%s %s: %w", container, o.ID.Name, err)
			}
			out.WriteString(lines)
		}
	}
	out.WriteString("}\n")
	return out.String(), nil
}

func blockText(d *dialect, o *dataplane.Object, elements []string) (string, error) {
	if o.ID.Container == ContainerChain {
		return chainText(d, o)
	}
	s, err := definition(o.ID.Name)
	if err != nil {
		return "", err
	}
	return s.text(d, elements), nil
}

// text prints the set with its elements.
func (s set) text(d *dialect, elements []string) string {
	var out strings.Builder
	kind, key := "set", "type "+s.types(d, s.key)
	switch {
	case s.verdict:
		kind, key = "map", key+" : verdict"
	case s.data != nil:
		kind, key = "map", "typeof "+s.typeofs(d, s.key)+" : "+s.typeofs(d, s.data)
	}
	fmt.Fprintf(&out, "\t%s %s {\n\t\t%s\n", kind, s.name, key)
	if s.remembers > 0 {
		fmt.Fprintf(&out, "\t\tsize %d\n\t\tflags dynamic,timeout\n", s.remembers)
	}
	if s.ranges {
		out.WriteString("\t\tflags interval\n")
	}
	if s.counts {
		out.WriteString("\t\tcounter\n")
	}
	if len(elements) > 0 {
		fmt.Fprintf(&out, "\t\telements = { %s }\n", strings.Join(elements, ",\n\t\t\t     "))
	}
	out.WriteString("\t}\n")
	return out.String()
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

// elementText prints one element of a set.
func elementText(d *dialect, name string, o *dataplane.Object) (string, error) {
	s, err := definition(name)
	if err != nil {
		return "", err
	}
	text, err := keyText(d, s, o.ID.Name)
	if err != nil {
		return "", fmt.Errorf("element %x of %s: %w", o.ID.Name, name, err)
	}
	body := []byte(o.Body)
	if comment := rules.Comment(netlink.Find(body, unix.NFTA_SET_ELEM_USERDATA).Data); comment != "" {
		text += fmt.Sprintf(" comment %q", comment)
	}
	data := netlink.Find(body, unix.NFTA_SET_ELEM_DATA).Data
	switch {
	case s.verdict:
		verdict, _ := rules.VerdictIn(data)
		text += " : " + verdict.Text()
	case s.data != nil:
		value, err := fieldsText(d, s.data, netlink.Find(data, unix.NFTA_DATA_VALUE).Data)
		if err != nil {
			return "", fmt.Errorf("element %x of %s: data: %w", o.ID.Name, name, err)
		}
		text += " : " + value
	}
	return text, nil
}

// chainText prints a chain with its rules.
func chainText(d *dialect, o *dataplane.Object) (string, error) {
	var out strings.Builder
	fmt.Fprintf(&out, "\tchain %s {\n", o.ID.Name)
	c := rules.DecodeChain(o.ID.Name, []byte(o.Body))
	if c.Base != nil {
		fmt.Fprintf(&out, "\t\t%s\n", c.Base.Text())
	}
	for i := range c.Rules {
		text, err := c.Rules[i].Text(d.Family)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&out, "\t\t%s\n", text)
	}
	out.WriteString("\t}\n")
	return out.String(), nil
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

// ElementText prints one element of a set or map.
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

// AffinityEntry is what a map of clients holds of a client.
type AffinityEntry struct {
	// Endpoint stands for the endpoint; it is the element's data.
	Endpoint netip.Addr
	// Left is for how much longer.
	Left time.Duration
}

// IsLiveSet reports whether a set of this name has the endpoints of a Service with affinity.
// A client that is known goes on to the one of them that is remembered.
func IsLiveSet(name string) bool { return strings.HasPrefix(name, liveSets.name+"-") }

// Element returns the arguments of "nft delete element" and the like: the set's name and the
// key.
func Element(family service.Family, key, container string) (set, text string, err error) {
	name, ok := SetOf(container)
	if !ok {
		return "", "", fmt.Errorf("%s holds no elements", container)
	}
	s, err := definition(name)
	if err != nil {
		return "", "", err
	}
	text, err = keyText(dialects[family], s, key)
	return name, text, err
}
