// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/ipvs/render"
	"github.com/sluice-proxy/sluice/dataplane/ipvs/wire"
	"github.com/sluice-proxy/sluice/service"
)

// Read returns all of Sluice's objects, sorted by ID: the device and its addresses of the family,
// the sets of the family with their entries, its virtual servers outside of excluded ranges, and
// the objects of the rules' writer. It makes one request for each virtual server.
func (w *Writer) Read(ctx context.Context) ([]dataplane.Object, error) {
	if err := w.take(ctx); err != nil {
		return nil, fmt.Errorf("read %s virtual servers: %w", w.family, err)
	}
	defer w.give()
	objects, err := w.readAll(ctx)
	if err != nil {
		if wire.Unknown(err) {
			_ = w.disconnect() // a late answer would be taken for that of a later request
		}
		return nil, fmt.Errorf("read %s virtual servers: %w", w.family, err)
	}
	slices.SortFunc(objects, func(a, b dataplane.Object) int { return a.ID.Compare(b.ID) })
	return objects, nil
}

func (w *Writer) readAll(ctx context.Context) ([]dataplane.Object, error) {
	if err := w.connect(); err != nil {
		return nil, err
	}
	objects, err := w.config.Rules.Read(ctx)
	if err != nil {
		return nil, err
	}
	type reader func(context.Context) ([]dataplane.Object, error)
	for _, read := range []reader{w.readDevice, w.readSets, w.readServers} {
		more, err := read(ctx)
		if err != nil {
			return nil, err
		}
		objects = append(objects, more...)
	}
	return objects, nil
}

// readDevice ignores another program's device with Sluice's name. The user learns of it from the
// kernel's rejection when a Service needs the device.
func (w *Writer) readDevice(context.Context) ([]dataplane.Object, error) {
	there, err := w.device.Exists()
	if _, wrong := errors.AsType[*wire.WrongTypeError](err); err != nil && !wrong {
		return nil, err
	}
	if !there {
		return nil, nil
	}
	addresses, _, err := w.device.Addresses(families[w.family])
	if err != nil {
		return nil, err
	}
	objects := make([]dataplane.Object, 0, len(addresses)+1)
	objects = append(objects, dataplane.Object{ID: render.DeviceID, Kind: dataplane.Owned})
	for _, a := range addresses {
		objects = append(objects, render.AddressObject(a))
	}
	return objects, nil
}

// readSets returns Sluice's sets with their entries, and those of other releases and of kube-proxy
// without, because their entries are removed with them.
func (w *Writer) readSets(ctx context.Context) ([]dataplane.Object, error) {
	sets, err := w.kernel.sets.List(ctx, func(name string) bool {
		_, ours := render.WordOf(w.family, name)
		return ours
	})
	if err != nil {
		return nil, err
	}
	var objects []dataplane.Object
	for i := range sets {
		s := &sets[i]
		objects = append(objects, render.SetObject(s.SetSpec))
		if _, wanted := w.sets[s.Name]; !wanted {
			continue
		}
		w.levels.found(s)
		objects = append(objects, render.EntryObjects(s.Name, s.Entries)...)
	}
	return objects, nil
}

func (w *Writer) readServers(ctx context.Context) ([]dataplane.Object, error) {
	found, err := w.kernel.servers.List(ctx, func(s wire.Service) bool { return w.ours(s.Frontend) })
	if err != nil {
		return nil, err
	}
	objects := make([]dataplane.Object, len(found))
	all := make(map[service.Frontend]bool, len(found))
	for i := range found {
		s := serverOf(found[i].Service, found[i].Destinations)
		w.leaving.seen(&s)
		objects[i], all[s.Frontend] = s.Object(), true
	}
	w.leaving.seenAll(all)
	return objects, nil
}

// foreignWeight marks a real server to which the kernel does not forward by masquerading. The
// kernel does not accept this weight, so no rendered real server has it. The request that changes
// the weight also changes the forwarding method.
const foreignWeight = math.MaxUint32

// serverOf returns a virtual server of the kernel in the form in which it is rendered.
func serverOf(found wire.Service, destinations []wire.Destination) render.Server {
	s := render.Server{Service: found, Reals: make([]wire.Real, len(destinations))}
	for i, d := range destinations {
		s.Reals[i] = d.Real
		if d.Forwarding != wire.Masquerading {
			s.Reals[i].Weight = foreignWeight
		}
	}
	slices.SortFunc(s.Reals, func(a, b wire.Real) int { return a.Addr.Compare(b.Addr) })
	return s
}
