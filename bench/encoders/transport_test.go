package encoders

import (
	"fmt"
	"testing"

	mdlayher "github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/internal/netlink"
)

// transports are both transports to netfilter in one namespace.
type transports struct {
	own     *netlink.Socket
	library *mdlayher.Conn
	pooled  *mdlayher.Conn
}

func newTransports(b *testing.B) *transports {
	b.Helper()
	node, err := netns.New("node")
	check(b, err)
	b.Cleanup(func() { check(b, node.Close()) })
	t := &transports{}
	check(b, node.Do(func() (err error) {
		if t.own, err = netlink.Open(netlink.Config{Protocol: unix.NETLINK_NETFILTER}); err != nil {
			return err
		}
		if t.library, err = mdlayher.Dial(unix.NETLINK_NETFILTER, nil); err != nil {
			return err
		}
		t.pooled, err = mdlayher.Dial(unix.NETLINK_NETFILTER, &mdlayher.Config{MessageBufferSize: 64 << 10})
		return err
	}))
	b.Cleanup(func() {
		check(b, t.own.Close())
		check(b, t.library.Close())
		check(b, t.pooled.Close())
	})
	return t
}

// BenchmarkTransportBatch carries a batch of requests that all are in one buffer already:
// tables that are there, of which only the last is acknowledged.
func BenchmarkTransportBatch(b *testing.B) {
	for _, requests := range []int{1, 1000} {
		b.Run(fmt.Sprint(requests), func(b *testing.B) {
			t := newTransports(b)
			batch := batchOf(requests)
			b.Run("own", func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					check(b, t.own.Exchange(batch, func(_ int, a netlink.Answer) { check(b, a.Err()) }))
				}
			})
			b.Run("mdlayher", func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					_, err := t.library.SendMessages(messagesOf(batch))
					check(b, err)
					_, err = t.library.Receive()
					check(b, err)
				}
			})
		})
	}
}

// batchOf returns a batch of requests for one table.
func batchOf(requests int) []byte {
	frame := func(b []byte, kind uint16) []byte {
		b, mark := netlink.Begin(b, kind, 0)
		return netlink.Finish(append(b, unix.AF_UNSPEC, unix.NFNETLINK_V0, 0, unix.NFNL_SUBSYS_NFTABLES), mark)
	}
	b := frame(nil, unix.NFNL_MSG_BATCH_BEGIN)
	mark := 0
	for range requests {
		b, mark = netlink.BeginNetfilter(b, unix.NFNL_SUBSYS_NFTABLES, unix.NFT_MSG_NEWTABLE, unix.NLM_F_CREATE, unix.NFPROTO_IPV4)
		b = netlink.Finish(netlink.AppendText(b, unix.NFTA_TABLE_NAME, "bench"), mark)
	}
	netlink.AddFlags(b[mark:], unix.NLM_F_ACK)
	return frame(b, unix.NFNL_MSG_BATCH_END)
}

// messagesOf returns the messages of a buffer in the library's form.
func messagesOf(b []byte) []mdlayher.Message {
	var all []mdlayher.Message
	for m := range netlink.Messages(b) {
		all = append(all, mdlayher.Message{
			Header: mdlayher.Header{Type: mdlayher.HeaderType(m.Kind), Flags: mdlayher.HeaderFlags(m.Flags)},
			Data:   m.Payload,
		})
	}
	return all
}

// BenchmarkTransportDump reads a list of 1,000 tables.
func BenchmarkTransportDump(b *testing.B) {
	t := newTransports(b)
	const tables = 1000
	batch := batchOf(1)
	for i := range tables {
		start, mark := netlink.BeginNetfilter(nil, unix.NFNL_SUBSYS_NFTABLES, unix.NFT_MSG_NEWTABLE, unix.NLM_F_CREATE, unix.NFPROTO_IPV4)
		m := netlink.Finish(netlink.AppendText(start, unix.NFTA_TABLE_NAME, fmt.Sprint("table-", i)), mark)
		batch = append(batch[:len(batch)-20], append(m, batch[len(batch)-20:]...)...)
	}
	check(b, t.own.Exchange(batch, func(_ int, a netlink.Answer) { check(b, a.Err()) }))
	request, mark := netlink.BeginNetfilter(nil, unix.NFNL_SUBSYS_NFTABLES, unix.NFT_MSG_GETTABLE, unix.NLM_F_DUMP, unix.NFPROTO_IPV4)
	request = netlink.Finish(request, mark)
	b.Run("own", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			count := 0
			check(b, t.own.Ask(b.Context(), request, func(netlink.Message) error { count++; return nil }))
			if count <= tables {
				b.Fatalf("%d tables", count)
			}
		}
	})
	for name, conn := range map[string]*mdlayher.Conn{"mdlayher": t.library, "mdlayher-pooled": t.pooled} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, err := conn.Send(messagesOf(request)[0])
				check(b, err)
				count := 0
				for _, err := range conn.ReceiveIter() {
					check(b, err)
					count++
				}
				if count <= tables {
					b.Fatalf("%d tables", count)
				}
			}
		})
	}
}
