package dataplane

import (
	"strings"

	"github.com/sluice-proxy/sluice/service"
)

// ID identifies an object within one domain. What Container and Name mean is
// the backend's business; together they are unique and stable.
type ID struct {
	// Container is the table, map or dispatch chain that holds the object.
	Container string
	// Name is the object's name or key within the container. It may hold
	// arbitrary bytes when the object is an element.
	Name string
}

// Compare orders identities by container, then name.
func (id ID) Compare(other ID) int {
	if c := strings.Compare(id.Container, other.Container); c != 0 {
		return c
	}
	return strings.Compare(id.Name, other.Name)
}

// Kind says how an object lives in the kernel.
type Kind uint8

const (
	// Owned objects (a chain, a set, a virtual server) are replaced whole.
	Owned Kind = iota
	// Element objects are entries of a shared container (a map, a dispatch
	// chain). Several Services may claim the same one. In a domain with a
	// Layout, elements are folded into composed Owned objects and never reach
	// the writer by themselves.
	Element
)

// Object is the smallest thing that is accounted for in a kernel. It is
// immutable once handed over.
type Object struct {
	ID   ID
	Kind Kind
	// Body is the object's content in the backend's canonical form: two bodies
	// are equal exactly when the kernel would hold the same thing.
	Body string
	// Refs are the identities in the same domain that must exist before this
	// object can.
	Refs []ID
	// Parts tells, for an object composed by a Layout, which Service each line
	// of Body comes from, so that a refusal can be blamed. Nil otherwise.
	Parts []Part
}

// Part is one line of a composed object.
type Part struct {
	// Owner is service.Node for lines that belong to nobody in particular.
	Owner service.Key
}

// Same reports whether two objects (either may be nil: absent) have equal
// content.
func Same(a, b *Object) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a == b || (a.ID == b.ID && a.Body == b.Body)
}
