package nftables

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/internal/netlink"
	"github.com/sluice-proxy/sluice/service"
)

// Remembered returns for how much longer one of the sets that remember clients holds a client. It
// asks the kernel for this element alone.
func Remembered(ctx context.Context, socket Socket, family service.Family, set string, client netip.Addr) (left time.Duration, known bool, err error) {
	r := reader{d: dialects[family], socket: socket}
	request, list := netlink.Nest(inTable(unix.NFTA_SET_ELEM_LIST_SET, set), unix.NFTA_SET_ELEM_LIST_ELEMENTS)
	request, element := netlink.Nest(request, unix.NFTA_LIST_ELEM)
	request, key := netlink.Nest(request, unix.NFTA_SET_ELEM_KEY)
	request = netlink.AppendBytes(request, unix.NFTA_DATA_VALUE, client.AsSlice())
	request = netlink.End(netlink.End(netlink.End(request, key), element), list)
	err = r.elements(ctx, false, request, func(element []byte) {
		// In milliseconds, big-endian.
		if left64 := netlink.Find(element, unix.NFTA_SET_ELEM_EXPIRATION).Data; len(left64) == 8 {
			left, known = time.Duration(binary.BigEndian.Uint64(left64))*time.Millisecond, true
		}
	})
	switch {
	case errors.Is(err, unix.ENOENT):
		return 0, false, nil // the client is not in the set, or there is no such set
	case err != nil:
		return 0, false, fmt.Errorf("ask for a client in set %s: %w", set, err)
	}
	return left, known && left > 0, nil
}
