// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"fmt"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/nftables/render"
)

// ahead is the table as read at a generation of the kernel's tables.
type ahead struct {
	objects    []dataplane.Object
	generation uint32
}

// ReadAhead reads the table for the next Read.
func (w *Writer) ReadAhead(ctx context.Context) {
	socket, err := w.open()
	if err != nil {
		return
	}
	r := w.reader(socket)
	a := &ahead{}
	if a.generation, err = r.generation(ctx); err != nil {
		return
	}
	if a.objects, err = r.once(ctx); err == nil {
		w.ahead = a
	}
}

// Read returns all objects in the table, in no order, and none if there is no table.
func (w *Writer) Read(ctx context.Context) ([]dataplane.Object, error) {
	objects, err := w.read(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the %s table %s: %w", w.d.Family, render.TableName, err)
	}
	w.config.Tally.adopt(len(objects) > 0)
	return objects, nil
}

func (w *Writer) read(ctx context.Context) ([]dataplane.Object, error) {
	socket, err := w.open()
	if err != nil {
		return nil, err
	}
	r := w.reader(socket)
	if a := w.ahead; a != nil {
		w.ahead = nil
		// If the generation is still that from before ReadAhead, no transaction landed since, so
		// the objects are consistent and current.
		if now, err := r.generation(ctx); err == nil && now == a.generation {
			return a.objects, nil
		}
	}
	return r.all(ctx)
}
