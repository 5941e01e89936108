// SPDX-License-Identifier: Apache-2.0

package render_test

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/nftables/render"
	"github.com/sluice-proxy/sluice/dataplane/nftables/rules"
	"github.com/sluice-proxy/sluice/dataplane/nftables/wire"
	"github.com/sluice-proxy/sluice/internal/netlink"
	"github.com/sluice-proxy/sluice/service"
)

// TestStatements_OtherMessages: messages that no transaction of the writer's tests contains have a text, which is a
// comment if it would otherwise mean something else.
func TestStatements_OtherMessages(t *testing.T) {
	tx := wire.NewTransaction(unix.NFPROTO_IPV6)
	message := func(kind uint16, name, attrs string) {
		tx.Begin(kind, 0)
		tx.Text(unix.NFTA_TABLE_NAME, "t")
		if name != "" {
			tx.Text(unix.NFTA_SET_NAME, name)
		}
		tx.Raw(attrs)
	}
	unknown := rules.Rule{Exprs: []rules.Expr{&rules.Unknown{Name: "telepathy"}}}
	passed := render.SetName("passed")
	message(unix.NFT_MSG_NEWTABLE, "", string(netlink.AppendUint32(nil, unix.NFTA_TABLE_FLAGS, unix.NFT_TABLE_F_DORMANT)))
	message(unix.NFT_MSG_DELRULE, "c", string(netlink.AppendUint64(nil, unix.NFTA_RULE_HANDLE, 7)))
	message(unix.NFT_MSG_NEWRULE, "c", string(unknown.Encode(nil)))
	message(unix.NFT_MSG_NEWSET, passed, render.FoundSet(service.IPv6, passed).Body)
	message(unix.NFT_MSG_NEWSET, passed, render.FoundSet(service.IPv4, passed).Body)
	element := render.AppendElementKey(nil, dataplane.ID{Container: "@s", Name: "\x00\x0a"})
	list := netlink.AppendBytes(nil, unix.NFTA_SET_ELEM_LIST_ELEMENTS, netlink.AppendBytes(nil, unix.NFTA_LIST_ELEM, element))
	message(unix.NFT_MSG_DELSETELEM, "s\n", string(list))
	message(unix.NFT_MSG_NEWFLOWTABLE, "f", "")
	want := `add table ip6 t { flags dormant; }
delete rule ip6 t c handle 7
# add rule ip6 t c a rule of 28 bytes, of another program or release
add set ip6 t ` + passed + ` { type ipv6_addr . inet_proto . inet_service; }
# add set ip6 t ` + passed + ` { a definition of another program or release; }
# delete element ip6 t s? { an element with the key 000a, of another release }
# message 22 of the family 10
`
	if got := render.Statements(tx.All()); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
