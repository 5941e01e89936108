package nftables

import (
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/internal/netlink"
	"github.com/sluice-proxy/sluice/service"
)

var _ dataplane.Origin = (*Writer)(nil)

// Owner reads the comment of an element: "namespace/name", for some with ":port".
func (w *Writer) Owner(o *dataplane.Object) (service.Key, bool) {
	if o.Kind != dataplane.Element {
		return service.Key{}, false
	}
	comment := commentIn(netlink.Find([]byte(o.Body), unix.NFTA_SET_ELEM_USERDATA).Data)
	namespace, rest, found := strings.Cut(comment, "/")
	name, _, _ := strings.Cut(rest, ":")
	return service.Key{Namespace: namespace, Name: name}, found
}

// Refs gives the set that an element is in and the chain that it leads to, and the
// sets and chains that the rules of a chain name.
func (w *Writer) Refs(o *dataplane.Object) []dataplane.ID {
	if set, ok := setOf(o.ID.Container); ok {
		refs := []dataplane.ID{setID(set)}
		data := netlink.Find([]byte(o.Body), unix.NFTA_SET_ELEM_DATA).Data
		return appendVerdictRef(refs, data)
	}
	if o.ID.Container != containerChain {
		return nil
	}
	var refs []dataplane.ID
	_, rules := chainParts(o.Body)
	for _, r := range rules {
		for element := range netlink.Attrs(netlink.Find(r, unix.NFTA_RULE_EXPRESSIONS).Data) {
			data := netlink.Find(element.Data, unix.NFTA_EXPR_DATA).Data
			switch netlink.Find(element.Data, unix.NFTA_EXPR_NAME).Text() {
			case "lookup":
				refs = append(refs, setID(netlink.Find(data, unix.NFTA_LOOKUP_SET).Text()))
			case "dynset":
				refs = append(refs, setID(netlink.Find(data, unix.NFTA_DYNSET_SET_NAME).Text()))
			case "immediate":
				refs = appendVerdictRef(refs, netlink.Find(data, unix.NFTA_IMMEDIATE_DATA).Data)
			}
		}
	}
	return refs
}

// appendVerdictRef adds the chain that data lead to, if any.
func appendVerdictRef(refs []dataplane.ID, data []byte) []dataplane.ID {
	verdict := netlink.Find(data, unix.NFTA_DATA_VERDICT).Data
	if chain := netlink.Find(verdict, unix.NFTA_VERDICT_CHAIN).Data; chain != nil {
		refs = append(refs, chainID(netlink.Find(verdict, unix.NFTA_VERDICT_CHAIN).Text()))
	}
	return refs
}
