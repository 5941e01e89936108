package manifest

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// checkMeta checks name and namespace; format tells what is wrong with a name.
func checkMeta(found *findings, meta *metav1.ObjectMeta, format func(string) []string, namespaced bool) {
	switch {
	case meta.Name == "":
		found.add("metadata.name", "is required")
	default:
		for _, message := range format(meta.Name) {
			found.add("metadata.name", "%q: %s", meta.Name, message)
		}
	}
	if !namespaced {
		if meta.Namespace != "" {
			found.add("metadata.namespace", "must not be set: the kind has no namespace")
		}
		return
	}
	for _, message := range validation.IsDNS1123Label(meta.Namespace) {
		found.add("metadata.namespace", "%q: %s", meta.Namespace, message)
	}
}

// checkOneOf checks a field that has a fixed set of values.
func checkOneOf[T ~string](found *findings, field string, value T, allowed ...T) {
	if slices.Contains(allowed, value) {
		return
	}
	quoted := make([]string, 0, len(allowed))
	for _, one := range allowed {
		quoted = append(quoted, string(one))
	}
	found.add(field, "%q must be one of %s", string(value), strings.Join(quoted, ", "))
}

// checkPort checks a port number that may not be 0.
func checkPort(found *findings, field string, port int32) {
	if port < 1 || port > 65535 {
		found.add(field, "must be between 1 and 65535, is %d", port)
	}
}

// checkAddress checks an address and gives it; it is not valid when it was
// reported.
func checkAddress(found *findings, field, text string) netip.Addr {
	address, err := netip.ParseAddr(text)
	switch {
	case err != nil:
		found.add(field, "%q is not an IP address", text)
		return netip.Addr{}
	case address.Zone() != "":
		found.add(field, "%q must not have a zone", text)
		return netip.Addr{}
	case address.Is4In6():
		found.add(field, "%q must be written as %s", text, address.Unmap())
		return netip.Addr{}
	}
	return address
}

// checkPublicAddress is checkAddress for addresses that packets are sent to over
// the network, where an API server refuses special ones as well.
func checkPublicAddress(found *findings, field, text string) netip.Addr {
	address := checkAddress(found, field, text)
	if !address.IsValid() {
		return address
	}
	special := ""
	switch {
	case address.IsUnspecified():
		special = "the unspecified address"
	case address.IsLoopback():
		special = "a loopback address"
	case address.IsLinkLocalUnicast():
		special = "a link-local address"
	case address.IsMulticast():
		special = "a multicast address"
	}
	if special != "" {
		found.add(field, "%s must not be %s", text, special)
		return netip.Addr{}
	}
	return address
}

// checkPrefix checks a CIDR.
func checkPrefix(found *findings, field, text string) netip.Prefix {
	prefix, err := netip.ParsePrefix(strings.TrimSpace(text))
	if err != nil {
		found.add(field, "%q is not a CIDR, such as 10.0.0.0/8 or fd00::/64", text)
	}
	return prefix
}

// index gives the path of an element of a list.
func index(path string, i int) string { return fmt.Sprintf("%s[%d]", path, i) }
