// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"context"
	"errors"
	"testing"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/proxy"
)

// draining is a kernel in which one object stays as it is.
type draining struct {
	stays dataplane.ID
	err   error
}

func (d draining) foresee(_ context.Context, c *dataplane.Change) (*dataplane.Object, error) {
	if c.ID == d.stays {
		return c.Before, d.err
	}
	return c.After, d.err
}

// TestForesee_Draining: a plan omits changes that only finish draining, because the kernel would be the same after a
// start.
func TestForesee_Draining(t *testing.T) {
	change := func(name string) dataplane.Change {
		id := dataplane.ID{Container: "server", Name: name}
		return dataplane.Change{ID: id, Before: &dataplane.Object{ID: id, Body: "a b"}, After: &dataplane.Object{ID: id, Body: "a"}}
	}
	changes := []dataplane.Change{change("one"), change("two")}
	for _, tt := range []struct {
		writer     dataplane.Writer
		left, kept int
		fails      bool
	}{
		{left: 2},
		{writer: dataplane.Writer{Foresee: draining{}.foresee}, left: 2},
		{writer: dataplane.Writer{Foresee: draining{stays: changes[1].ID}.foresee}, left: 1, kept: 1},
		{writer: dataplane.Writer{Foresee: draining{err: errors.New("no answer")}.foresee}, fails: true},
	} {
		left, kept, err := foresee(t.Context(), &proxy.Domain{Name: "d", Writer: tt.writer}, changes)
		if len(left) != tt.left || kept != tt.kept || (err != nil) != tt.fails || len(left) > 0 && left[0].ID != changes[0].ID {
			t.Errorf("%+v: %+v, %d stay, %v", tt, left, kept, err)
		}
	}
}
