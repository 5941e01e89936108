package iptables

import "github.com/sluice-proxy/sluice/dataplane"

// isShared tells whether a chain is kept together with the kubelet; see Shared.
func isShared(table Table, chain string) bool { return table == Filter && Shared(chain) }

// onlyExists tells whether an object is a shared chain in which we want nothing
// of our own. What it holds is then nobody's business here.
func onlyExists(o *dataplane.Object) bool {
	return o.Body == "" && isShared(Table(o.ID.Container), o.ID.Name)
}

// noteShared remembers how a batch wants the shared chains.
func (w *Writer) noteShared(batch *dataplane.Batch) {
	for i := range batch.Changes {
		if after := batch.Changes[i].After; after != nil && isShared(Table(after.ID.Container), after.ID.Name) {
			w.loose[after.ID] = onlyExists(after)
		}
	}
}

// asWanted gives a chain that was read the body that it is wanted with, if it is
// one that only has to exist: otherwise each audit would find the kubelet's
// rules in it, and plan to remove what Write then leaves alone. Before the first
// batch nothing is known about what is wanted, so the first audit finds them
// once.
func (w *Writer) asWanted(o *dataplane.Object) *dataplane.Object {
	if !w.loose[o.ID] {
		return o
	}
	return &dataplane.Object{ID: o.ID, Kind: o.Kind}
}
