// SPDX-License-Identifier: Apache-2.0

package source

import (
	"slices"
	"strings"

	"github.com/sluice-proxy/sluice/service"
)

// sliceList holds the slices of one Service, sorted by name. Nearly all Services have
// one or two, for which a map would cost more; a Service with thousands of endpoints
// has dozens.
type sliceList []*service.Slice

// find returns the place of a name, and whether it is there.
func (l sliceList) find(name string) (int, bool) {
	return slices.BinarySearchFunc(l, name, func(s *service.Slice, name string) int { return strings.Compare(s.Name, name) })
}

// get returns the slice of a name, nil when there is none.
func (l sliceList) get(name string) *service.Slice {
	if at, found := l.find(name); found {
		return l[at]
	}
	return nil
}

// with returns the list with a slice put in, in place of one of its name.
func (l sliceList) with(slice *service.Slice) sliceList {
	at, found := l.find(slice.Name)
	if found {
		l[at] = slice
		return l
	}
	return slices.Insert(l, at, slice)
}

// without returns the list with the slice of a name taken out.
func (l sliceList) without(name string) sliceList {
	if at, found := l.find(name); found {
		return slices.Delete(l, at, at+1)
	}
	return l
}
