// Package release translates the rules of nftables mode to those that another release might have
// written. The simulation and the tests of faults take them over.
package release

import (
	"regexp"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/internal/netlink"
)

var classChain = regexp.MustCompile(`cluster-(\d)`)

// Translated gives chains other names of the same length, and bounds sets.
func Translated(objects []dataplane.Object) []dataplane.Object {
	rename := func(text string) string {
		return strings.ReplaceAll(classChain.ReplaceAllString(text, "klaster-$1"), "services\x00", "dispatch\x00")
	}
	renamed := func(name string) string { return strings.TrimSuffix(rename(name+"\x00"), "\x00") }
	out := make([]dataplane.Object, 0, len(objects))
	for _, o := range objects {
		switch o.ID.Container {
		case "chain":
			o.ID.Name, o.Body = renamed(o.ID.Name), rename(o.Body)
		case "set":
			if o.ID.Name != "allowed-sources" {
				o.Body = bounded(o.Body)
			}
		case "@frontends", "@nodeports":
			o.Body = rename(o.Body)
		}
		var refs []dataplane.ID
		for _, ref := range o.Refs() {
			if ref.Container == "chain" {
				ref.Name = renamed(ref.Name)
			}
			refs = append(refs, ref)
		}
		o.Links = dataplane.LinkTo(refs...)
		out = append(out, o)
	}
	return out
}

// bounded returns the definition of a set with a maximum size.
func bounded(body string) string {
	const size = 100000
	var out []byte
	for attr := range netlink.Attrs([]byte(body)) {
		switch attr.Type {
		case unix.NFTA_SET_DESC:
			continue
		case unix.NFTA_SET_USERDATA:
			b, mark := netlink.Nest(out, unix.NFTA_SET_DESC)
			out = netlink.End(netlink.AppendUint32(b, unix.NFTA_SET_DESC_SIZE, size), mark)
		}
		out = netlink.AppendBytes(out, attr.Type, attr.Data)
	}
	return string(out)
}
