// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane/traffic"
	"github.com/sluice-proxy/sluice/internal/netlink"
	"github.com/sluice-proxy/sluice/service"
)

// Attributes of the counters (IPVS_SVC_ATTR_STATS…, which real servers have, too; IPVS_STATS_ATTR_…).
const (
	serviceStats   = 10
	serviceStats64 = 12

	statsConnections = 1
	statsPacketsIn   = 2
	statsPacketsOut  = 3
	statsBytesIn     = 4
	statsBytesOut    = 5
)

// getService and getDestination are IPVS_CMD_GET_SERVICE and IPVS_CMD_GET_DEST.
const (
	getService     = 4
	getDestination = 8
)

// Traffic returns the kernel's counters of each virtual server since its creation, from one list. With endpoints, it
// also returns those of each real server, from one list per virtual server. The kernel updates the sums every two
// seconds, but not at all while the sysctl net.ipv4.vs.run_estimation is 0.
//
// Traffic opens a separate socket, so that a reader of metrics never delays the writer. It parses the answer without
// moby/ipvs, which reads connections and packets with only 32 bits.
func Traffic(ctx context.Context, endpoints bool) (map[service.Frontend]traffic.Counts, map[traffic.Pair]traffic.Counts, error) {
	family, err := lookUp(familyName)
	if err != nil {
		return nil, nil, err
	}
	socket, err := netlink.Open(netlink.Config{Protocol: unix.NETLINK_GENERIC})
	if err != nil {
		return nil, nil, err
	}
	ask := func(command Verb, attrs []byte, kind uint16, each func(attrs []byte)) error {
		request, mark := netlink.Begin(nil, family, unix.NLM_F_DUMP)
		request = netlink.Finish(append(append(request, genericHeader(command)...), attrs...), mark)
		return socket.Ask(ctx, request, func(m netlink.Message) error {
			each(netlink.Find(m.Payload[min(4, len(m.Payload)):], kind).Data)
			return nil
		})
	}
	servers, reals := map[service.Frontend]traffic.Counts{}, map[traffic.Pair]traffic.Counts{}
	err = ask(getService, nil, commandService, func(attrs []byte) {
		if frontend, ok := parseFrontend(attrs); ok {
			servers[frontend] = parseStats(attrs)
		}
	})
	for f := range servers {
		if !endpoints || err != nil {
			break
		}
		err = ask(getDestination, appendService(nil, Service{Frontend: f}, false), commandDestination, func(attrs []byte) {
			if at := parseReal(f, attrs); at.IsValid() {
				reals[traffic.Pair{Frontend: f, Endpoint: at}] = parseStats(attrs)
			}
		})
		if errors.Is(err, unix.ESRCH) { // it was deleted after the list
			err = nil
		}
	}
	if err := errors.Join(err, socket.Close()); err != nil {
		return nil, nil, fmt.Errorf("read the counters of virtual servers: %w", err)
	}
	return servers, reals, nil
}

// parseReal reads the address and port of a real server, which has the family of its virtual server.
func parseReal(f service.Frontend, attrs []byte) netip.AddrPort {
	address := netlink.Find(attrs, destinationAddress).Data
	if f.Addr.Is4() && len(address) > 4 {
		address = address[:4]
	}
	return netip.AddrPortFrom(netlink.Attr{Data: address}.Addr(), netlink.Find(attrs, destinationPort).Uint16())
}

// parseFrontend reads the frontend of a virtual server. It returns false for a virtual server
// without one.
func parseFrontend(attrs []byte) (f service.Frontend, ok bool) {
	var family uint16
	var address []byte
	for a := range netlink.Attrs(attrs) {
		switch a.Type {
		case serviceFamily:
			family = a.HostUint16()
		case serviceProtocol:
			f.Protocol, ok = service.ProtocolOf(uint8(a.HostUint16()))
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

// parseStats reads the counters of a virtual or real server: those of 64 bits (Linux 4.1), or else
// those of 32 bits.
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
