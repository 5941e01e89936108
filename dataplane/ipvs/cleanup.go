package ipvs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/ipvs/device"
	"github.com/sluice-proxy/sluice/dataplane/ipvs/genl"
	"github.com/sluice-proxy/sluice/dataplane/ipvs/ipset"
	"github.com/sluice-proxy/sluice/service"
)

// CleanupSummary counts what a cleanup removed.
type CleanupSummary struct {
	// Servers counts virtual servers.
	Servers int
	// Device reports whether the dummy device was there.
	Device bool
	// Sets counts sets.
	Sets int
}

// Any reports whether something was there to remove.
func (s CleanupSummary) Any() bool { return s.Servers > 0 || s.Device || s.Sets > 0 }

// Cleanup removes what Sluice, or kube-proxy in IPVS mode, left in the network
// namespace, of both families: virtual servers, the device, then, by rules, what asks
// the sets, and the sets. It loads no module into a kernel that has none of this. What
// is already gone is no error; one step that fails does not keep the others from being
// made, but that the sets stay while virtual servers do: they tell which are ours.
//
// Ours are the virtual servers at an address of the device, those in a set of
// frontends, and those at an address of the host with a port in a set of node ports.
// Others, which kube-proxy would remove as well, stay.
func Cleanup(ctx context.Context, rules func() error) (CleanupSummary, error) {
	var s CleanupSummary
	serversErr := s.removeServers(ctx)
	deviceErr := s.removeDevice()
	err := errors.Join(serversErr, deviceErr, rules())
	if serversErr != nil {
		return s, err
	}
	return s, errors.Join(err, s.removeSets(ctx))
}

// The files that a kernel shows when it has IPVS, and sets; to ask over netlink would
// load them, and takes more privilege.
const (
	fileServers = "/proc/thread-self/net/ip_vs"
	fileSets    = "/sys/module/ip_set"
)

// titleLines are those at the top of fileServers.
const titleLines = 3

func hasServers() bool {
	text, err := os.ReadFile(fileServers)
	return err == nil && bytes.Count(text, []byte("\n")) > titleLines
}

func hasSets() bool {
	_, err := os.Stat(fileSets)
	return err == nil
}

func (s *CleanupSummary) removeServers(ctx context.Context) error {
	if !hasServers() {
		return nil
	}
	socket, err := genl.Open()
	if err != nil {
		return err
	}
	defer func() { _ = socket.Close() }() // nothing is left to be said over it
	services, err := socket.Services(ctx)
	if err != nil || len(services) == 0 {
		return err
	}
	known, err := learn(ctx)
	if err != nil {
		return fmt.Errorf("find out which virtual servers are ours: %w", err)
	}
	var requests []genl.Request
	for _, service := range services {
		if known.ours(service.Frontend) {
			requests = append(requests, genl.DelService(service.Frontend))
		}
	}
	var failed []error
	for _, err := range socket.Do(ctx, requests) {
		if err == nil || genl.Missing(err) {
			s.Servers++
		} else {
			failed = append(failed, err)
		}
	}
	return errors.Join(failed...)
}

// frontends are what tells our virtual servers from others.
type frontends struct {
	// bound and hosts are the addresses of the device, and of the host beside.
	bound, hosts []netip.Addr
	served       map[dataplane.Frontend]bool
	// ports are node ports; these frontends have no address. In IPv6 they are kept
	// apart.
	ports service.PerFamily[map[dataplane.Frontend]bool]
}

// learn reads the device and the sets.
func learn(ctx context.Context) (*frontends, error) {
	f := &frontends{served: map[dataplane.Frontend]bool{}}
	if err := f.learnAddresses(); err != nil {
		return nil, err
	}
	for _, family := range service.Families {
		f.ports[family] = map[dataplane.Frontend]bool{}
	}
	if !hasSets() {
		return f, nil
	}
	socket, err := ipset.Open()
	if err != nil {
		return nil, err
	}
	defer func() { _ = socket.Close() }() // nothing is left to be said over it
	sets, err := socket.List(ctx, func(name string) bool { return isOurs(name) })
	for i := range sets {
		f.learnSet(&sets[i])
	}
	return f, err
}

func (f *frontends) learnAddresses() error {
	d, err := device.Open(nil)
	if err != nil {
		return err
	}
	defer func() { _ = d.Close() }() // nothing is left to be said over it
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		own, others, err := d.Addresses(family)
		if err != nil {
			return err
		}
		f.bound, f.hosts = append(f.bound, own...), append(f.hosts, others...)
	}
	return nil
}

// learnSet learns from one of our sets.
func (f *frontends) learnSet(set *ipset.Set) {
	for _, e := range set.Entries {
		if set.Type == ipset.HashIPPort {
			protocol, known := protocolOf(e.Protocol)
			f.served[dataplane.Frontend{Addr: e.Addr, Port: e.Port, Protocol: protocol}] = known
		}
	}
	for _, family := range service.Families {
		for name, protocol := range map[string]service.Protocol{setNodePortTCP: service.TCP, setNodePortUDP: service.UDP} {
			if set.Name != setName(family, name) {
				continue
			}
			for _, e := range set.Entries {
				f.ports[family][dataplane.Frontend{Port: e.Port, Protocol: protocol}] = true
			}
		}
	}
}

func protocolOf(p ipset.Protocol) (service.Protocol, bool) { return parseProtocol(p.String()) }

// ours reports whether a virtual server is.
func (f *frontends) ours(server dataplane.Frontend) bool {
	if f.served[server] || slices.Contains(f.bound, server.Addr) {
		return true
	}
	port := dataplane.Frontend{Port: server.Port, Protocol: server.Protocol}
	return f.ports[service.FamilyOf(server.Addr)][port] && slices.Contains(f.hosts, server.Addr)
}

func (s *CleanupSummary) removeDevice() error {
	d, err := device.Open(nil)
	if err != nil {
		return err
	}
	defer func() { _ = d.Close() }() // nothing is left to be said over it
	there, err := d.Exists()
	if err != nil || !there {
		return err
	}
	err = d.Delete()
	s.Device = err == nil
	return err
}

// Sets that rules have let go of are in use for a moment longer: iptables-nft frees
// rules when nobody can be reading them any more.
const (
	busyPause = 20 * time.Millisecond
	busyTries = 50
)

func (s *CleanupSummary) removeSets(ctx context.Context) error {
	if !hasSets() {
		return nil
	}
	socket, err := ipset.Open()
	if err != nil {
		return err
	}
	defer func() { _ = socket.Close() }() // nothing is left to be said over it
	found, err := socket.Headers(ctx, isOurs)
	if err != nil {
		return err
	}
	var names []string
	for _, set := range found {
		names = append(names, set.Name)
	}
	for try := 1; ; try++ {
		var failed []error
		var busy []string
		for i, err := range socket.Destroy(ctx, names) {
			switch {
			case err == nil:
				s.Sets++
			case errors.Is(err, ipset.ErrInUse):
				busy = append(busy, names[i])
				fallthrough
			default:
				failed = append(failed, err)
			}
		}
		if len(busy) == 0 || len(busy) < len(failed) || try == busyTries {
			return errors.Join(failed...)
		}
		names = busy
		select {
		case <-ctx.Done():
			return errors.Join(failed...)
		case <-time.After(busyPause):
		}
	}
}

// isOurs reports whether a set is, by its name, in either family.
func isOurs(name string) bool {
	for _, k := range kinds {
		if name == k.name || name == setName(service.IPv6, k.name) {
			return true
		}
	}
	return name == swapName(service.IPv4) || name == swapName(service.IPv6) || isBeside(name)
}
