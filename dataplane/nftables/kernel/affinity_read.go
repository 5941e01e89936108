// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane/nftables/render"
	"github.com/sluice-proxy/sluice/dataplane/nftables/rules"
	"github.com/sluice-proxy/sluice/internal/netlink"
	"github.com/sluice-proxy/sluice/service"
)

// Remembered returns a client's entry in one of the maps for affinity. It requests only this element
// from the kernel.
func Remembered(ctx context.Context, socket Socket, family service.Family, name string, client netip.Addr) (r render.AffinityEntry, known bool, err error) {
	read := reader{d: &rules.Headers[family], socket: socket}
	request, list := netlink.Nest(inTable(unix.NFTA_SET_ELEM_LIST_SET, name), unix.NFTA_SET_ELEM_LIST_ELEMENTS)
	request, element := netlink.Nest(request, unix.NFTA_LIST_ELEM)
	request, key := netlink.Nest(request, unix.NFTA_SET_ELEM_KEY)
	request = netlink.AppendBytes(request, unix.NFTA_DATA_VALUE, client.AsSlice())
	request = netlink.End(netlink.End(netlink.End(request, key), element), list)
	err = read.elements(ctx, false, request, func(element []byte) {
		data := netlink.Find(netlink.Find(element, unix.NFTA_SET_ELEM_DATA).Data, unix.NFTA_DATA_VALUE).Data
		r.Endpoint, known = netip.AddrFromSlice(data)
		r.Left = expiration(element)
	})
	switch {
	case errors.Is(err, unix.ENOENT):
		return render.AffinityEntry{}, false, nil // the client is not in the map, or there is no such map
	case err != nil:
		return render.AffinityEntry{}, false, fmt.Errorf("look up a client in map %s: %w", name, err)
	}
	return r, known && r.Left > 0, nil
}

// expiration returns the time until an element expires, or 0 if it does not expire.
func expiration(element []byte) time.Duration {
	ms := netlink.Find(element, unix.NFTA_SET_ELEM_EXPIRATION).Data
	if len(ms) != 8 {
		return 0
	}
	return time.Duration(binary.BigEndian.Uint64(ms)) * time.Millisecond
}
