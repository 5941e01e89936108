package wire

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane/traffic"
	"github.com/sluice-proxy/sluice/internal/netlink"
	"github.com/sluice-proxy/sluice/service"
)

// Attributes of the counters (IPVS_SVC_ATTR_STATS…, IPVS_STATS_ATTR_…).
const (
	serviceStats   = 10
	serviceStats64 = 12

	statsConnections = 1
	statsPacketsIn   = 2
	statsPacketsOut  = 3
	statsBytesIn     = 4
	statsBytesOut    = 5
)

// getService is IPVS_CMD_GET_SERVICE.
const getService = 4

// Traffic returns what the kernel has counted since each virtual server was made, from one list. It sums its
// counters up every two seconds, and not at all while the sysctl net.ipv4.vs.run_estimation is 0.
//
// It opens a separate socket, so that a reader of metrics never delays the service. It reads the
// answer itself because moby/ipvs has connections and packets with 32 bits only.
func Traffic(ctx context.Context) (map[service.Frontend]traffic.Counts, error) {
	family, err := lookUp(familyName)
	if err != nil {
		return nil, err
	}
	socket, err := netlink.Open(netlink.Config{Protocol: unix.NETLINK_GENERIC})
	if err != nil {
		return nil, err
	}
	request, mark := netlink.Begin(nil, family, unix.NLM_F_DUMP)
	request = netlink.Finish(append(request, genericHeader(getService)...), mark)
	stats := map[service.Frontend]traffic.Counts{}
	err = socket.Ask(ctx, request, func(m netlink.Message) error {
		attrs := netlink.Find(m.Payload[min(4, len(m.Payload)):], commandService).Data
		if frontend, ok := parseFrontend(attrs); ok {
			stats[frontend] = parseStats(attrs)
		}
		return nil
	})
	if err := errors.Join(err, socket.Close()); err != nil {
		return nil, fmt.Errorf("read the counters of virtual servers: %w", err)
	}
	return stats, nil
}

// parseFrontend reads what identifies a virtual server. It returns false for one that has
// no frontend.
func parseFrontend(attrs []byte) (f service.Frontend, ok bool) {
	var family uint16
	var address []byte
	for a := range netlink.Attrs(attrs) {
		switch a.Type {
		case serviceFamily:
			family = a.HostUint16()
		case serviceProtocol:
			f.Protocol, ok = ProtocolOf(a.HostUint16())
		case serviceAddress:
			address = a.Data // 16 bytes in either family
		case servicePort:
			f.Port = a.Uint16()
		}
	}
	if family == unix.AF_INET && len(address) > 4 {
		address = address[:4]
	}
	f.Addr = netlink.Attr{Data: address}.Addr()
	return f, ok && f.Addr.IsValid()
}

// parseStats reads the counters of a virtual server: the wide ones (Linux 4.1), or else
// the narrow ones.
func parseStats(attrs []byte) traffic.Counts {
	nested := netlink.Find(attrs, serviceStats64).Data
	if nested == nil {
		nested = netlink.Find(attrs, serviceStats).Data
	}
	var s traffic.Counts
	for a := range netlink.Attrs(nested) {
		switch a.Type {
		case statsConnections:
			s.Connections = counter(a)
		case statsPacketsIn:
			s.PacketsIn = counter(a)
		case statsPacketsOut:
			s.PacketsOut = counter(a)
		case statsBytesIn:
			s.BytesIn = counter(a)
		case statsBytesOut:
			s.BytesOut = counter(a)
		}
	}
	return s
}

// counter reads a number of 64 or 32 bits.
func counter(a netlink.Attr) uint64 {
	if len(a.Data) == 8 {
		return binary.NativeEndian.Uint64(a.Data)
	}
	return uint64(a.HostUint32())
}
