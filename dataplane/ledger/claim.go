package ledger

import (
	"slices"
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// claim is one Service's wish for one object.
type claim struct {
	key     service.Key
	created time.Time
	object  *dataplane.Object
}

// outranks tells whether c wins against other: the scaffold first, then the
// older Service, then the smaller key.
func (c claim) outranks(other claim) bool {
	if node := c.key == service.Node; node != (other.key == service.Node) {
		return node
	}
	if by := c.created.Compare(other.created); by != 0 {
		return by < 0
	}
	return c.key.Compare(other.key) < 0
}

// claims are the wishes for one object, strongest first. Nearly always there
// is exactly one.
type claims []claim

func (cs claims) winner() *claim {
	if len(cs) == 0 {
		return nil
	}
	return &cs[0]
}

// with gives the claims after key's wish has been set to c.
func (cs claims) with(c claim) claims {
	cs = cs.without(c.key)
	at := slices.IndexFunc(cs, c.outranks)
	if at < 0 {
		at = len(cs)
	}
	return slices.Insert(cs, at, c)
}

// without gives the claims after key's wish has been withdrawn.
func (cs claims) without(key service.Key) claims {
	return slices.DeleteFunc(cs, func(c claim) bool { return c.key == key })
}
