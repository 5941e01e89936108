package conntrack

import (
	"encoding/binary"
	"net/netip"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane/nftables/wire"
	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/service"
)

// injected is a flow that a test puts into the kernel's table, as translation
// would have left it.
type injected struct {
	protocol                              uint8
	client, destination, answerer, source netip.AddrPort
}

// inject makes flows in a namespace, by requests of a reasonable size.
func inject(t testing.TB, n *netns.Namespace, family service.Family, flows []injected) {
	t.Helper()
	err := n.Do(func() error {
		s, err := openSocket()
		if err != nil {
			return err
		}
		defer s.close() //nolint:errcheck // everything was acknowledged
		const perRequest = 256
		for len(flows) > 0 {
			some := flows[:min(perRequest, len(flows))]
			flows = flows[len(some):]
			var request []byte
			for i := range some {
				request = appendInjected(request, family, &some[i], i == len(some)-1)
			}
			if err := s.send(request); err != nil {
				return err
			}
			datagram, err := s.receive()
			if err != nil {
				return err
			}
			for m := range messages(datagram) {
				if err := m.failure(); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatalf("inject flows: %v", err)
	}
}

func appendInjected(b []byte, family service.Family, f *injected, last bool) []byte {
	const (
		messageNew    = 0 // IPCTNL_MSG_CT_NEW
		attrStatus    = 3 // CTA_STATUS
		attrTimeout   = 7 // CTA_TIMEOUT
		confirmed     = 1 << 3
		seenReply     = 1 << 1
		timeoutSecond = 600
	)
	flags := uint16(unix.NLM_F_CREATE | unix.NLM_F_EXCL)
	if last {
		flags |= unix.NLM_F_ACK
	}
	b, mark := openMessage(b, messageNew, flags, 1, family)
	b = appendTuple(b, attrOriginal, family, f.protocol, f.client, f.destination)
	b = appendTuple(b, attrReply, family, f.protocol, f.answerer, f.source)
	b = wire.AppendUint32(b, attrStatus, confirmed|seenReply)
	b = wire.AppendUint32(b, attrTimeout, timeoutSecond)
	return shutMessage(b, mark)
}

func appendTuple(b []byte, kind uint16, family service.Family, protocol uint8, source, destination netip.AddrPort) []byte {
	b, tuple := wire.Nest(b, kind|nested)
	b, ip := wire.Nest(b, attrTupleIP|nested)
	b = wire.AppendBytes(b, layouts[family].source, source.Addr().AsSlice())
	b = wire.AppendBytes(b, layouts[family].destination, destination.Addr().AsSlice())
	b, ports := wire.Nest(wire.End(b, ip), attrTupleProtocol|nested)
	b = wire.AppendBytes(b, attrProtocol, []byte{protocol})
	b = wire.AppendBytes(b, attrSourcePort, binary.BigEndian.AppendUint16(nil, source.Port()))
	b = wire.AppendBytes(b, attrDestinationPort, binary.BigEndian.AppendUint16(nil, destination.Port()))
	return wire.End(wire.End(b, ports), tuple)
}

// count is the number of flows in a namespace.
func count(t testing.TB, n *netns.Namespace) int {
	t.Helper()
	text, err := n.ReadSysctl("net.netfilter.nf_conntrack_count")
	if err != nil {
		t.Fatal(err)
	}
	number, err := strconv.Atoi(strings.TrimSpace(text))
	if err != nil {
		t.Fatal(err)
	}
	return number
}

// newNode makes a namespace in which flows are tracked.
func newNode(t testing.TB) *netns.Namespace {
	t.Helper()
	n, err := netns.New("node")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	return n
}
