//go:build ipvs

package encoders

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"github.com/moby/ipvs"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	ipvswire "github.com/sluice-proxy/sluice/dataplane/ipvs/wire"
	"github.com/sluice-proxy/sluice/internal/host/netns"
	sluicenetlink "github.com/sluice-proxy/sluice/internal/netlink"
	"github.com/sluice-proxy/sluice/service"
)

// These benchmarks need a kernel with IPVS: see docs/adr/0011-ipvs.md for how to run them
// in the virtual machine, and docs/adr/0021-libraries-in-ipvs-mode.md for the results.

// The node has so many virtual servers, with so many real servers each.
const (
	virtualServers = 1000
	realServers    = 10
)

func inNamespace(b *testing.B, run func() error) {
	b.Helper()
	node, err := netns.New("bench")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = node.Close() })
	if err := node.Do(run); err != nil {
		b.Fatal(err)
	}
}

func frontendAt(i int) service.Frontend {
	return service.Frontend{Addr: netip.AddrFrom4([4]byte{10, 96, byte(i >> 8), byte(i)}), Port: 80}
}

func realAt(i int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)}), 8080)
}

func mobyService(f service.Frontend) *ipvs.Service {
	return &ipvs.Service{
		AddressFamily: unix.AF_INET, Protocol: unix.IPPROTO_TCP, Address: f.Addr.AsSlice(), Port: f.Port,
		SchedName: "rr", Netmask: 0xffffffff,
	}
}

func mobyReal(a netip.AddrPort) *ipvs.Destination {
	return &ipvs.Destination{AddressFamily: unix.AF_INET, Address: a.Addr().AsSlice(), Port: a.Port(), Weight: 1}
}

func aboutReal(verb ipvswire.Verb, f service.Frontend, addr netip.AddrPort) ipvswire.Request {
	return ipvswire.Request{Verb: verb, Service: ipvswire.Service{Frontend: f}, Real: ipvswire.Real{Addr: addr, Weight: 1}}
}

// kernelIPVS is one namespace with our writer, a bare socket, and the library.
type kernelIPVS struct {
	own    *ipvswire.ServerWriter
	socket *sluicenetlink.Socket
	family uint16
	moby   *ipvs.Handle
}

func newKernelIPVS(b *testing.B) *kernelIPVS {
	b.Helper()
	k := &kernelIPVS{}
	inNamespace(b, func() (err error) {
		if k.own, err = ipvswire.OpenServerWriter(); err != nil {
			return err
		}
		if k.socket, err = sluicenetlink.Open(sluicenetlink.Config{Protocol: unix.NETLINK_GENERIC}); err != nil {
			return err
		}
		family, err := netlink.GenlFamilyGet("IPVS")
		if err != nil {
			return err
		}
		k.family = family.ID
		k.moby, err = ipvs.New("")
		return err
	})
	return k
}

// list is what a reader of our own would do at least: it asks for a list and walks over
// the attributes of each item.
func (k *kernelIPVS) list(b *testing.B, command byte, about []byte) (items int) {
	b.Helper()
	request, mark := sluicenetlink.Begin(nil, k.family, unix.NLM_F_DUMP)
	request = append(append(request, command, 1, 0, 0), about...)
	err := k.socket.Ask(context.Background(), sluicenetlink.Finish(request, mark), func(m sluicenetlink.Message) error {
		for outer := range sluicenetlink.Attrs(m.Payload[4:]) {
			for range sluicenetlink.Attrs(outer.Data) {
			}
		}
		items++
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
	return items
}

// IPVS_CMD_GET_SERVICE and IPVS_CMD_GET_DEST.
const (
	getService     = 4
	getDestination = 8
)

// identity is the attribute that names a virtual server.
func identity(f service.Frontend) []byte {
	b, mark := sluicenetlink.Nest(nil, 1)
	b = sluicenetlink.AppendHostUint16(b, 1, unix.AF_INET)
	b = sluicenetlink.AppendHostUint16(b, 2, unix.IPPROTO_TCP)
	b = sluicenetlink.AppendBytes(b, 3, f.Addr.AsSlice())
	b = sluicenetlink.AppendUint16(b, 4, f.Port)
	return sluicenetlink.End(b, mark)
}

func (k *kernelIPVS) write(b *testing.B) {
	b.Helper()
	var requests []ipvswire.Request
	for i := range virtualServers {
		f := frontendAt(i)
		requests = append(requests, ipvswire.Request{Verb: ipvswire.NewService, Service: ipvswire.Service{Frontend: f, Scheduler: "rr"}})
		for r := range realServers {
			requests = append(requests, aboutReal(ipvswire.NewReal, f, realAt(r)))
		}
	}
	if err := errors.Join(k.own.Do(context.Background(), requests)...); err != nil {
		b.Fatal(err)
	}
}

func (k *kernelIPVS) empty(b *testing.B) {
	b.StopTimer()
	if err := k.moby.Flush(); err != nil {
		b.Fatal(err)
	}
	b.StartTimer()
}

// BenchmarkIPVSWrite writes all virtual and real servers.
func BenchmarkIPVSWrite(b *testing.B) {
	k := newKernelIPVS(b)
	b.Run("own", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			k.write(b)
			k.empty(b)
		}
	})
	b.Run("moby", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			for i := range virtualServers {
				s := mobyService(frontendAt(i))
				if err := k.moby.NewService(s); err != nil {
					b.Fatal(err)
				}
				for r := range realServers {
					if err := k.moby.NewDestination(s, mobyReal(realAt(r))); err != nil {
						b.Fatal(err)
					}
				}
			}
			k.empty(b)
		}
	})
}

// BenchmarkIPVSOneReal adds one real server and removes it, beside all others.
func BenchmarkIPVSOneReal(b *testing.B) {
	k := newKernelIPVS(b)
	k.write(b)
	f, r := frontendAt(virtualServers/2), realAt(realServers)
	b.Run("own", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			for _, request := range []ipvswire.Request{aboutReal(ipvswire.NewReal, f, r), aboutReal(ipvswire.DelReal, f, r)} {
				if err := k.own.Do(context.Background(), []ipvswire.Request{request})[0]; err != nil {
					b.Fatal(err)
				}
			}
		}
	})
	b.Run("moby", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			s, d := mobyService(f), mobyReal(r)
			if err := errors.Join(k.moby.NewDestination(s, d), k.moby.DelDestination(s, d)); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkIPVSRead reads all virtual servers with their real servers.
func BenchmarkIPVSRead(b *testing.B) {
	k := newKernelIPVS(b)
	k.write(b)
	b.Run("own", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if found := k.list(b, getService, nil); found != virtualServers {
				b.Fatal(found)
			}
			for i := range virtualServers {
				if found := k.list(b, getDestination, identity(frontendAt(i))); found != realServers {
					b.Fatal(found)
				}
			}
		}
	})
	b.Run("moby", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			servers, err := k.moby.GetServices()
			if err != nil || len(servers) != virtualServers {
				b.Fatal(len(servers), err)
			}
			for _, s := range servers {
				if found, err := k.moby.GetDestinations(s); err != nil || len(found) != realServers {
					b.Fatal(len(found), err)
				}
			}
		}
	})
}

// BenchmarkIPVSDrain asks for the real servers of one virtual server.
func BenchmarkIPVSDrain(b *testing.B) {
	k := newKernelIPVS(b)
	k.write(b)
	f := frontendAt(virtualServers / 2)
	b.Run("own", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if found := k.list(b, getDestination, identity(f)); found != realServers {
				b.Fatal(found)
			}
		}
	})
	b.Run("moby", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if found, err := k.moby.GetDestinations(mobyService(f)); err != nil || len(found) != realServers {
				b.Fatal(len(found), err)
			}
		}
	})
}

// BenchmarkAddresses adds and removes a thousand addresses of the device, in sends of 128
// requests that the library encodes, and with a call of the library each.
func BenchmarkAddresses(b *testing.B) {
	const count, perSend = 1000, 128
	var socket *sluicenetlink.Socket
	var h *netlink.Handle
	link := &netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Name: ipvswire.DeviceName}}
	inNamespace(b, func() (err error) {
		if socket, err = sluicenetlink.Open(sluicenetlink.Config{Protocol: unix.NETLINK_ROUTE}); err != nil {
			return err
		}
		if h, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
			return err
		}
		return h.LinkAdd(link)
	})
	var addresses []netip.Addr
	for i := range count {
		addresses = append(addresses, frontendAt(i).Addr)
	}
	batch := func(kind, flags int) error {
		var b []byte
		for i, a := range addresses {
			request := nl.NewNetlinkRequest(kind, flags|unix.NLM_F_ACK)
			head := nl.NewIfAddrmsg(unix.AF_INET)
			head.Prefixlen, head.Index = 32, uint32(link.Index)
			request.AddData(head)
			request.AddData(nl.NewRtAttr(unix.IFA_LOCAL, a.AsSlice()))
			request.AddData(nl.NewRtAttr(unix.IFA_ADDRESS, a.AsSlice()))
			b = append(b, request.Serialize()...)
			if i%perSend != perSend-1 && i != count-1 {
				continue
			}
			var refused error
			err := socket.Exchange(b, func(_ int, a sluicenetlink.Answer) { refused = errors.Join(refused, a.Err()) })
			if err := errors.Join(err, refused); err != nil {
				return err
			}
			b = b[:0]
		}
		return nil
	}
	b.Run("own", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			err := errors.Join(batch(unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_EXCL), batch(unix.RTM_DELADDR, 0))
			if err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("vishvananda", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			for _, change := range []func(netlink.Link, *netlink.Addr) error{h.AddrAdd, h.AddrDel} {
				for _, a := range addresses {
					if err := change(link, &netlink.Addr{IPNet: netlink.NewIPNet(a.AsSlice())}); err != nil {
						b.Fatal(err)
					}
				}
			}
		}
	})
}

// BenchmarkSetEntries fills a set, and lists it.
func BenchmarkSetEntries(b *testing.B) {
	const set, count = "KUBE-CLUSTER-IP", 10_000
	var own *ipvswire.Sets
	var h *netlink.Handle
	inNamespace(b, func() (err error) {
		if own, err = ipvswire.OpenSets(); err != nil {
			return err
		}
		h, err = netlink.NewHandle(unix.NETLINK_NETFILTER)
		return err
	})
	if err := h.IpsetCreate(set, "hash:ip,port", netlink.IpsetCreateOptions{Family: unix.AF_INET}); err != nil {
		b.Fatal(err)
	}
	var entries []ipvswire.EntryChange
	for i := range count {
		e := ipvswire.Entry{Addr: frontendAt(i).Addr, Protocol: ipvswire.TCP, Port: 80}
		entries = append(entries, ipvswire.EntryChange{Set: set, Entry: e})
	}
	add := func() error { return errors.Join(own.Add(context.Background(), entries)...) }
	flush := func(b *testing.B) {
		b.StopTimer()
		if err := h.IpsetFlush(set); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
	b.Run("add/own", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := add(); err != nil {
				b.Fatal(err)
			}
			flush(b)
		}
	})
	b.Run("add/vishvananda", func(b *testing.B) {
		b.ReportAllocs()
		port, protocol := uint16(80), uint8(unix.IPPROTO_TCP)
		for b.Loop() {
			for _, c := range entries {
				e := &netlink.IPSetEntry{IP: c.Entry.Addr.AsSlice(), Protocol: &protocol, Port: &port, Replace: true}
				if err := h.IpsetAdd(set, e); err != nil {
					b.Fatal(err)
				}
			}
			flush(b)
		}
	})
	if err := add(); err != nil {
		b.Fatal(err)
	}
	b.Run("list/own", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if s, err := own.Get(context.Background(), set); err != nil || len(s.Entries) != count {
				b.Fatal(fmt.Sprint(len(s.Entries)), err)
			}
		}
	})
	b.Run("list/vishvananda", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if s, err := h.IpsetList(set); err != nil || len(s.Entries) != count {
				b.Fatal(fmt.Sprint(len(s.Entries)), err)
			}
		}
	})
}
