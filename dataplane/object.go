// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"strings"

	"github.com/sluice-proxy/sluice/service"
)

// ID identifies an object within one domain. Its meaning is up to the backend. It is
// unique and stable.
type ID struct {
	// Container is the table, map or dispatch chain that holds the object.
	Container string
	// Name is the object's name or key within the container. The name of an element
	// may have arbitrary bytes.
	Name string
}

// Compare orders identities by container, then name.
func (id ID) Compare(other ID) int {
	if c := strings.Compare(id.Container, other.Container); c != 0 {
		return c
	}
	return strings.Compare(id.Name, other.Name)
}

// Kind is how an object is stored in the kernel.
type Kind uint8

const (
	// Owned objects (a chain, a set, a virtual server) are replaced whole.
	Owned Kind = iota
	// Element objects are entries of a shared container (a map, a dispatch
	// chain). Several Services may claim the same one. In a domain with a
	// Layout, elements are folded into composed Owned objects and never reach the
	// writer.
	Element
)

// Object is one thing in the kernel. It is immutable once handed over.
type Object struct {
	ID   ID
	Kind Kind
	// Body is the object's content in the backend's canonical form: two bodies
	// are equal exactly when the kernel would hold the same thing.
	Body string
	// Links is nil for an object without references and parts.
	Links *Links
}

// Links are what an object has besides its content. There are a million elements on a large
// node, and those of one set share theirs.
type Links struct {
	// Refs are the objects of the domain that must exist before this one.
	Refs []ID
	// Parts has the Service of each line of Body for an object composed by a Layout,
	// so that a rejection can be attributed. Nil otherwise.
	Parts []Part
}

// LinkTo returns links that are references alone.
func LinkTo(refs ...ID) *Links {
	if len(refs) == 0 {
		return nil
	}
	return &Links{Refs: refs}
}

// Refs returns the objects of the domain that must exist before this one.
func (o *Object) Refs() []ID {
	if o.Links == nil {
		return nil
	}
	return o.Links.Refs
}

// Parts returns the parts of an object composed by a Layout.
func (o *Object) Parts() []Part {
	if o.Links == nil {
		return nil
	}
	return o.Links.Parts
}

// Part is one line of a composed object.
type Part struct {
	// Owner is service.Node for lines that belong to no Service.
	Owner service.Key
}

// Same reports whether two objects have equal content; nil means absent.
func Same(a, b *Object) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a == b || (a.ID == b.ID && a.Body == b.Body)
}
