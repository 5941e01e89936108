// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"
	"unicode"
)

// Destination is the destination of a connection that explain describes: an address, or a Service.
type Destination struct {
	Text string
	// Addr is set for an address, whose port explain.ParseFlow reads. Otherwise, Service is set.
	Addr netip.Addr
	// Service has no namespace if the text has none.
	Service ServiceName
	// port is a name or a number. port and protocol may be empty.
	port, protocol string
}

// ParseDestination parses an address, or a Service in a form of ParseName or DNS, optionally with :PORT and /PROTOCOL.
// All errors of a Destination begin with its text.
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

// Frontend returns the ADDRESS:PORT/PROTOCOL of the only frontend that matches the destination and has a ClusterIP of
// the family. It returns an error if no frontend or several match.
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
