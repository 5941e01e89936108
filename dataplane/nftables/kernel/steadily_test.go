// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/nftables/render"
	"github.com/sluice-proxy/sluice/dataplane/nftables/rules"
	"github.com/sluice-proxy/sluice/internal/netlink"
	"github.com/sluice-proxy/sluice/service"
)

// rehashing is a kernel that makes room in the set of frontends during the first lists of its elements. Such a list has one
// element twice, and the generation stays.
type rehashing struct {
	Socket
	during, lists int
}

func (k *rehashing) Ask(_ context.Context, kind uint16, family uint8, _ bool, _ []byte, each func(netlink.Netfilter)) error {
	var attrs []byte
	set := render.SetName("frontends")
	switch kind {
	case unix.NFT_MSG_GETSET:
		attrs = netlink.AppendText(nil, unix.NFTA_SET_NAME, set)
	case unix.NFT_MSG_GETSETELEM:
		k.lists++
		keys := []string{"element A   ", "element B   "}
		if k.lists <= k.during {
			keys[1] = keys[0]
		}
		list, all := netlink.Nest(nil, unix.NFTA_SET_ELEM_LIST_ELEMENTS)
		for _, key := range keys {
			element, end := netlink.Nest(list, unix.NFTA_LIST_ELEM)
			list = netlink.End(render.AppendElementKey(element, dataplane.ID{Container: render.ContainerOf(set), Name: key}), end)
		}
		attrs = netlink.End(list, all)
	case unix.NFT_MSG_GETCHAIN, unix.NFT_MSG_GETRULE:
		return nil
	}
	each(netlink.Netfilter{Family: family, Attrs: attrs})
	return nil
}

// TestRead_RetriesListWithRepetition: a list with a repeated element is read again, as often as an interrupted reading.
func TestRead_RetriesListWithRepetition(t *testing.T) {
	for during, complete := range map[int]bool{0: true, 1: true, readAttempts - 1: true, readAttempts: false} {
		k := &rehashing{during: during}
		objects, err := (&reader{d: &rules.Headers[service.IPv4], socket: k}).all(t.Context())
		if complete && (err != nil || len(objects) != 4 || k.lists != during+1) || // table, set and its elements
			!complete && (!errors.Is(err, netlink.ErrInterrupted) || objects != nil || k.lists != readAttempts) {
			t.Errorf("%d interrupted: %d objects after %d lists, %v", during, len(objects), k.lists, err)
		}
	}
}

// TestSteadily: another error and the end of the context end the attempts.
func TestSteadily(t *testing.T) {
	other := errors.New("another error")
	ended, end := context.WithCancel(t.Context())
	end()
	for name, c := range map[string]struct {
		ctx  context.Context
		errs []error
		want error
	}{
		"read at once":     {t.Context(), []error{nil}, nil},
		"read again":       {t.Context(), []error{netlink.ErrInterrupted, netlink.ErrInterrupted, nil}, nil},
		"another error":    {t.Context(), []error{netlink.ErrInterrupted, other}, other},
		"the context ends": {ended, []error{netlink.ErrInterrupted}, netlink.ErrInterrupted},
	} {
		attempts := 0
		err := (&reader{d: &rules.Headers[service.IPv4], socket: &rehashing{}}).steadily(c.ctx, func() error {
			attempts++
			return c.errs[attempts-1]
		})
		if !errors.Is(err, c.want) || attempts != len(c.errs) {
			t.Errorf("%s: %d attempts, %v", name, attempts, err)
		}
	}
}
