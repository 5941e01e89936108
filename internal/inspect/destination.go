package inspect

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"
	"unicode"
)

// Destination is what explain takes as the end of a connection: an address, or a Service.
type Destination struct {
	Text string
	// Addr is that of an address, whose port explain.ParseFlow reads. Otherwise, the Service is set.
	Addr netip.Addr
	// Service has no namespace if the text has none.
	Service ServiceName
	// port is a name or a number. Both may be empty.
	port, protocol string
}

// ParseDestination reads an address, or a Service as ParseName and DNS name it, with :PORT and /PROTOCOL or not. All
// errors of a Destination begin with its text.
func ParseDestination(text string) (*Destination, error) {
	d := &Destination{Text: text}
	place, _, _ := strings.Cut(text, "/")
	if at, err := ParseEndpoint(place); err == nil {
		d.Addr = at.Addr()
		return d, nil
	}
	name, port, _ := strings.Cut(text, ":")
	d.port, d.protocol, _ = strings.Cut(port, "/")
	var err error
	if d.Service, err = ParseName("", name, ServiceKinds); err != nil || !strings.ContainsFunc(name, unicode.IsLetter) {
		return nil, Misused("%q: must be an address and port, such as 10.96.0.10:53/udp, or a Service, such as svc/web:http",
			text)
	}
	if short, rest, dotted := strings.Cut(d.Service.Name, "."); dotted && d.Service.Namespace == "" {
		d.Service.Name = short
		d.Service.Namespace, _, _ = strings.Cut(rest, ".")
	}
	return d, nil
}

// Frontend returns the only frontend that is meant, with a ClusterIP of a family. A Service without one in the family
// has other addresses.
func (d *Destination) Frontend(all []Frontend, is4 bool) (string, error) {
	var ports, matches []string
	for _, f := range all {
		addr, err := netip.ParseAddr(f.Address)
		if f.Kind != "ClusterIP" || err != nil || addr.Is4() != is4 {
			continue
		}
		ports = append(ports, fmt.Sprintf(":%s (%d/%s)", cmp.Or(f.PortName, fmt.Sprint(f.Port)), f.Port, f.Protocol))
		if (d.port == "" || d.port == f.PortName || d.port == fmt.Sprint(f.Port)) &&
			(d.protocol == "" || strings.EqualFold(d.protocol, f.Protocol)) {
			matches = append(matches, netip.AddrPortFrom(addr, uint16(f.Port)).String()+"/"+f.Protocol)
		}
	}
	switch {
	case len(ports) == 0:
		return "", fmt.Errorf("%q: no ClusterIP of the family of --from; "+
			"use an address that sluice describe service %s shows", d.Text, d.Service)
	case len(matches) != 1:
		return "", Misused("%q: must end in one of the ports %s", d.Text, strings.Join(ports, ", "))
	}
	return matches[0], nil
}
