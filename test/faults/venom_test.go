package faults

import (
	"fmt"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/nftables/wire"
	"github.com/sluice-proxy/sluice/service"
)

// venom spoils the objects of a Service so that the kernel refuses them.
type venom struct {
	name string
	// errno is the kernel's reason.
	errno syscall.Errno
	spoil func(p *poison, family service.Family, objects []dataplane.Object) []dataplane.Object
}

var venoms = []venom{
	{"an interval that overlaps another Service's", unix.EEXIST, addOverlap},
	{"an element with a flag that no kernel knows", unix.EOPNOTSUPP, addFlag},
	{"a rule with an expression that no kernel knows", unix.ENOENT, addExpression},
}

const (
	allowedSources = "@allowed-sources"
	frontends      = "@frontends"
)

// addOverlap adds a range that begins inside one of the Service external, and ends
// outside.
func addOverlap(p *poison, family service.Family, objects []dataplane.Object) []dataplane.Object {
	at := slices.IndexFunc(p.external, func(o dataplane.Object) bool { return o.ID.Container == allowedSources })
	overlap := p.external[at]
	name := []byte(overlap.ID.Name) // the first and the last value, each ending with the source's address
	half := len(name) / 2
	name[half-1] += 0x80
	name[len(name)-family.Bits()/8]++
	overlap.ID.Name = string(name)
	return append(objects, overlap)
}

// addFlag spoils the element that leads to the Service.
func addFlag(_ *poison, _ service.Family, objects []dataplane.Object) []dataplane.Object {
	for i := range objects {
		if objects[i].ID.Container == frontends {
			const unknown = 0x80
			objects[i].Body += string(wire.AppendUint32(nil, unix.NFTA_SET_ELEM_FLAGS, unknown))
			return objects
		}
	}
	panic("a Service without a frontend cannot be spoiled like this")
}

// addExpression adds a chain.
func addExpression(_ *poison, _ service.Family, objects []dataplane.Object) []dataplane.Object {
	return append(objects, unheardOf("endpoint-unheard-of"))
}

// addExpressions adds many such chains: the kernel has an answer to each.
func addExpressions(_ *poison, _ service.Family, objects []dataplane.Object) []dataplane.Object {
	for n := range 40 {
		objects = append(objects, unheardOf(fmt.Sprint("endpoint-unheard-of-", n)))
	}
	return objects
}

// unheardOf is a chain whose rule has an expression that no kernel knows.
func unheardOf(name string) dataplane.Object {
	const bodyRule = 2
	body, rule := wire.Nest(nil, bodyRule)
	body, list := wire.Nest(body, unix.NFTA_RULE_EXPRESSIONS)
	body, element := wire.Nest(body, unix.NFTA_LIST_ELEM)
	body = wire.AppendText(body, unix.NFTA_EXPR_NAME, "telepathy")
	body = wire.End(wire.End(wire.End(body, element), list), rule)
	return dataplane.Object{ID: dataplane.ID{Container: "chain", Name: name}, Kind: dataplane.Owned, Body: string(body)}
}
