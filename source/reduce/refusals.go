// SPDX-License-Identifier: Apache-2.0

package reduce

import (
	"net/netip"
	"strings"

	"github.com/sluice-proxy/sluice/service"
)

// The annotations by which a Service chooses which clients are refused, and how; see docs/configuration.md.
const (
	annotationNoEndpoints = "sluice.dev/no-endpoints"
	annotationDenyRanges  = "sluice.dev/deny-source-ranges"
)

// denyRangesMax bounds the ranges of a Service: in iptables mode a new connection is compared with each of them.
const denyRangesMax = 256

func (p *Policy) noEndpoints(n *notes, annotations map[string]string) service.NoEndpoints {
	const isDefault = "the default applies to connections without an endpoint"
	text, asked := annotations[annotationNoEndpoints]
	if !asked {
		return service.NoEndpointsDefault
	}
	value, known := service.ParseNoEndpoints(strings.TrimSpace(text))
	if !known {
		n.add(annotation(annotationNoEndpoints), isDefault, "%q: must be reject, drop or pass", text)
		return service.NoEndpointsDefault
	}
	if why := p.NoEndpoints[value]; why != "" {
		n.add(annotation(annotationNoEndpoints), isDefault, "%s %s", value, why)
		return service.NoEndpointsDefault
	}
	return value
}

// denyRanges reduces the list. A single address counts as a range. An unusable entry does not invalidate the others:
// without them, more sources would get through.
func (p *Policy) denyRanges(n *notes, annotations map[string]string) (found service.PerFamily[[]netip.Prefix]) {
	const notDenied = "the sources of this entry are not denied"
	text, asked := annotations[annotationDenyRanges]
	if !asked {
		return found
	}
	where := annotation(annotationDenyRanges)
	if p.NoDenyRanges != "" {
		n.add(where, "no source is denied", "%s", p.NoDenyRanges)
		return found
	}
	used, skipped := 0, 0
	for entry := range strings.SplitSeq(text, ",") {
		if entry = strings.TrimSpace(entry); entry == "" {
			continue
		}
		prefix, ok := parsePrefix(entry)
		if addr, single := parseAddr(entry); single {
			prefix, ok = netip.PrefixFrom(addr, addr.BitLen()), true
		}
		switch {
		case !ok:
			skipped++
			n.add(where, notDenied, "entry %q is neither a CIDR nor an IP address", entry)
			continue
		case used == denyRangesMax:
			n.add(where, "the sources of this entry and those behind it are not denied",
				"entry %q exceeds the limit of %d ranges", entry, denyRangesMax)
			return merged(found)
		}
		used++
		family := service.FamilyOf(prefix.Addr())
		found[family] = append(found[family], prefix)
	}
	if used == 0 && skipped == 0 {
		n.add(where, "no source is denied", "the list is empty")
	}
	return merged(found)
}

func merged(found service.PerFamily[[]netip.Prefix]) service.PerFamily[[]netip.Prefix] {
	for _, family := range service.Families {
		found[family] = service.MergeRanges(found[family])
	}
	return found
}
