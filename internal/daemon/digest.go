// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"fmt"
	"hash"
	"hash/fnv"
	"reflect"

	"github.com/sluice-proxy/sluice/service"
)

// digestOf returns a hash of those fields of a Service's objects that the proxy reads. Processes of different releases
// compare it: fields without a value do not count, so a new field does not change the digests of the Services that do
// not use it.
func digestOf(known service.Snapshot) uint64 {
	sum := fnv.New64a()
	if known.Spec != nil {
		spec := *known.Spec
		spec.Created, spec.Denied = spec.Created.UTC(), service.PerFamily[[]service.Denial]{} // which follows from other Services
		for _, port := range spec.Ports {
			port.NotOutside = false // which follows from the configuration
			addFields(sum, port)
		}
		spec.Ports = nil
		addFields(sum, spec)
	}
	for _, s := range known.Slices {
		if s.Observed != nil {
			continue
		}
		addFields(sum, struct {
			Name          string
			Family        service.Family
			Ports         []service.SlicePort
			Weight        uint16
			Drains        bool
			EndpointCount int
		}{s.Name, s.Family, s.Ports, s.Weight, s.Drains, len(s.Endpoints)})
		for i := range s.Endpoints {
			e := &s.Endpoints[i]
			_, _ = fmt.Fprintf(sum, "%v %v %v %v %q\n", e.Addr, e.Ready, e.Serving, e.Terminating, *e.Where()) // cannot fail
		}
	}
	return sum.Sum64()
}

// addFields adds the fields of a struct that have a value.
func addFields(sum hash.Hash, of any) {
	v := reflect.ValueOf(of)
	for i := range v.NumField() {
		if f := v.Field(i); !f.IsZero() {
			_, _ = fmt.Fprintf(sum, "%s=%v\n", v.Type().Field(i).Name, f.Interface())
		}
	}
}
