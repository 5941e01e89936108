// SPDX-License-Identifier: Apache-2.0

// Package plan finds out what a start of the proxy would change in the kernel. Make lets a
// ledger plan its changes after reading the kernel. A Report sorts them by Service, and prints
// them. Nothing is written.
package plan

import (
	"cmp"
	"slices"

	"github.com/sluice-proxy/sluice/internal/daemon/backend"
	"github.com/sluice-proxy/sluice/internal/host/sysctl"
	"github.com/sluice-proxy/sluice/service"
)

// Report is the difference between the kernel and what would be rendered.
type Report struct {
	// Node is the node's name, Mode the mode of the start.
	Node string `json:"node"`
	Mode string `json:"mode"`
	// Domains are the kernel tables that were read, such as "nftables/IPv4".
	Domains []string `json:"domains"`
	// Services counts all Services. Unchanged counts the objects that are in the kernel as
	// wanted.
	Services  int `json:"services"`
	Unchanged int `json:"unchanged"`
	// Warnings are about parts of objects that a start ignores.
	Warnings []service.Warning `json:"warnings,omitempty"`
	// Groups are sorted: Services by name, then the node's own objects, then unowned ones.
	Groups []*Group `json:"groups"`
	// Others are rules of other modes, and Settings kernel settings: a start changes them, too.
	Others   []backend.Leftover `json:"otherModes,omitempty"`
	Settings []sysctl.Change    `json:"settings,omitempty"`

	index map[owner]*Group
}

// owner identifies a group.
type owner struct {
	kind Kind
	key  service.Key
}

// Kind is the kind of owner of a group's objects.
type Kind string

// The kinds of groups, in their order. Unowned objects are in the proxy's tables, but do not
// belong to an existing Service and do not name one.
const (
	OfService Kind = "service"
	OfNode    Kind = "node"
	OfNobody  Kind = "nobody"
)

// Group contains the changes of one Service, of the node, or of unowned objects.
type Group struct {
	Kind Kind `json:"kind"`
	// Service is "namespace/name"; empty for the other kinds.
	Service string   `json:"service,omitempty"`
	Added   int      `json:"added"`
	Changed int      `json:"changed"`
	Removed int      `json:"removed"`
	Objects []Object `json:"objects"`

	key service.Key
}

// Object is one difference. An object that is added has no lines before, one that is removed
// has none after.
type Object struct {
	Domain string `json:"domain"`
	// Where names the object, or what it is in: "frontends", "chain services", "nat
	// KUBE-SERVICES".
	Where  string   `json:"where"`
	Change Change   `json:"change"`
	Before []string `json:"before,omitempty"`
	After  []string `json:"after,omitempty"`
}

// Change is what would happen to an object.
type Change string

// The changes.
const (
	Added   Change = "added"
	Changed Change = "changed"
	Removed Change = "removed"
)

// Differs reports whether a start would change anything.
func (r *Report) Differs() bool { return len(r.Groups)+len(r.Others)+len(r.Settings) > 0 }

// add files a difference.
func (r *Report) add(kind Kind, key service.Key, o Object) {
	if kind != OfService {
		key = service.Key{}
	}
	of := owner{kind, key}
	g := r.index[of]
	if g == nil {
		g = &Group{Kind: kind, key: key}
		if kind == OfService {
			g.Service = key.String()
		}
		if r.index == nil {
			r.index = map[owner]*Group{}
		}
		r.index[of] = g
		r.Groups = append(r.Groups, g)
	}
	g.Objects = append(g.Objects, o)
	switch o.Change {
	case Added:
		g.Added++
	case Changed:
		g.Changed++
	case Removed:
		g.Removed++
	}
}

// sort sorts the groups.
func (r *Report) sort() {
	rank := map[Kind]int{OfService: 0, OfNode: 1, OfNobody: 2}
	slices.SortStableFunc(r.Groups, func(a, b *Group) int {
		return cmp.Or(rank[a.Kind]-rank[b.Kind], a.key.Compare(b.key))
	})
}
