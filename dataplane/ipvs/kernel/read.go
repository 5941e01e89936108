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

// Read returns all that is ours, sorted by ID: the device and its addresses of the family,
// the sets of the family with their entries, its virtual servers outside of excluded
// ranges, and what the rules' writer reads. Each virtual server takes a question.
func (w *Writer) Read(ctx context.Context) ([]dataplane.Object, error) {
	if err := w.take(ctx); err != nil {
		return nil, fmt.Errorf("read %s virtual servers: %w", w.family, err)
	}
	defer w.give()
	objects, err := w.readAll(ctx)
	if err != nil {
		if wire.Unknown(err) {
			_ = w.disconnect() // the connection is of no more use
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

// readDevice ignores a device of our name that is not ours. The kernel's rejection tells
// the user about it when a Service needs ours.
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

// readSets returns ours with their entries, and those of other releases and of kube-proxy, whose
// entries go with them.
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

// foreignWeight stands for a real server to which packets are not forwarded by
// masquerading. The kernel does not accept this weight, so it equals no rendered one. The
// request that changes the weight changes the forwarding as well.
const foreignWeight = math.MaxUint32

// serverOf is a virtual server of the kernel in the form in which it is rendered.
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
