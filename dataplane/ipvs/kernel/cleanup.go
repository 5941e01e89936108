// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane/ipvs/render"
	"github.com/sluice-proxy/sluice/dataplane/ipvs/wire"
	"github.com/sluice-proxy/sluice/internal/sleep"
	"github.com/sluice-proxy/sluice/service"
)

// CleanupSummary counts what a cleanup removed.
type CleanupSummary struct {
	// Servers counts virtual servers.
	Servers int
	// Device reports whether the dummy device existed.
	Device bool
	// Sets counts sets.
	Sets int
}

// Any reports whether there was something to remove.
func (s CleanupSummary) Any() bool { return s.Servers > 0 || s.Device || s.Sets > 0 }

// Cleanup removes everything that Sluice, or kube-proxy in IPVS mode, left in the network namespace, in
// both families: virtual servers and the device; then, by calling rules, the iptables rules that look up
// the sets; then the sets. It does not load modules that the kernel has not loaded. Missing objects are
// no error. If one step fails, the others are still made, except that the sets stay as long as virtual
// servers do, because the sets show which servers are Sluice's.
//
// Sluice's virtual servers are those at an address of the device, those in a set of frontends, and
// those at an address of the host with a port in a set of node ports. Other virtual servers stay,
// although kube-proxy would remove them.
//
// If dry is set, Cleanup removes nothing, and returns what it would remove.
func Cleanup(ctx context.Context, dry bool, rules func() error) (CleanupSummary, error) {
	s := cleanup{dry: dry}
	serversErr := s.removeServers(ctx)
	deviceErr := s.removeDevice()
	err := errors.Join(serversErr, deviceErr, rules())
	if serversErr != nil {
		return s.CleanupSummary, err
	}
	err = errors.Join(err, s.removeSets(ctx))
	return s.CleanupSummary, err
}

// cleanup is one call of Cleanup.
type cleanup struct {
	CleanupSummary
	dry bool
}

// These files exist if the kernel has loaded IPVS, and sets. A netlink request would load the modules,
// and needs more privileges.
const (
	fileServers = "/proc/thread-self/net/ip_vs"
	fileSets    = "/sys/module/ip_set"
)

// titleLines is the number of header lines in fileServers.
const titleLines = 3

// HasServers reports whether there are virtual servers, of any program. It loads no module.
func HasServers() bool {
	text, err := os.ReadFile(fileServers)
	return err == nil && bytes.Count(text, []byte("\n")) > titleLines
}

func hasSets() bool {
	_, err := os.Stat(fileSets)
	return err == nil
}

func (s *cleanup) removeServers(ctx context.Context) error {
	if !HasServers() {
		return nil
	}
	servers, err := wire.OpenServers()
	if err != nil {
		return err
	}
	defer servers.Close() // nothing can be lost
	services, err := servers.Services(ctx)
	if err != nil || len(services) == 0 {
		return err
	}
	known, err := learn(ctx)
	if err != nil {
		return fmt.Errorf("determine which virtual servers belong to Sluice: %w", err)
	}
	var requests []wire.Request
	for _, service := range services {
		if known.ours(service.Frontend) {
			requests = append(requests, wire.Request{Verb: wire.DelService, Service: service})
		}
	}
	if s.dry || len(requests) == 0 {
		s.Servers = len(requests)
		return nil
	}
	changes, err := wire.OpenServerWriter()
	if err != nil {
		return err
	}
	defer changes.Close() // nothing can be lost
	var failed []error
	for _, err := range changes.Do(ctx, requests) {
		if err == nil || wire.Missing(err) {
			s.Servers++
		} else {
			failed = append(failed, err)
		}
	}
	return errors.Join(failed...)
}

// frontends distinguish Sluice's virtual servers from others.
type frontends struct {
	// bound are the addresses of the device, and hosts the other addresses of the host.
	bound, hosts []netip.Addr
	served       map[service.Frontend]bool
	// ports are node ports. These frontends have no address. Each family has its own.
	ports service.PerFamily[map[service.Frontend]bool]
}

// learn reads the device and the sets.
func learn(ctx context.Context) (*frontends, error) {
	f := &frontends{served: map[service.Frontend]bool{}}
	if err := f.learnAddresses(); err != nil {
		return nil, err
	}
	for _, family := range service.Families {
		f.ports[family] = map[service.Frontend]bool{}
	}
	if !hasSets() {
		return f, nil
	}
	sets, err := wire.OpenSets()
	if err != nil {
		return nil, err
	}
	defer sets.Close() // nothing can be lost
	found, err := sets.List(ctx, isOurs)
	for i := range found {
		f.learnSet(&found[i])
	}
	return f, err
}

func (f *frontends) learnAddresses() error {
	d, err := wire.OpenDevice(nil, unix.AF_UNSPEC)
	if err != nil {
		return err
	}
	defer d.Close() // nothing can be lost
	for _, family := range families {
		own, others, err := d.Addresses(family)
		if err != nil {
			return err
		}
		f.bound, f.hosts = append(f.bound, own...), append(f.hosts, others...)
	}
	return nil
}

// portSets are the sets of node ports without addresses, by the words in their names.
var portSets = map[string]service.Protocol{render.SetNodePortTCP: service.TCP, render.SetNodePortUDP: service.UDP}

// learnSet adds the frontends of one of Sluice's sets.
func (f *frontends) learnSet(set *wire.Set) {
	for _, e := range set.Entries {
		if set.Type == wire.HashIPPort {
			protocol, known := wire.ProtocolOf(uint16(e.Protocol))
			f.served[service.Frontend{Addr: e.Addr, Port: e.Port, Protocol: protocol}] = known
		}
	}
	for _, family := range service.Families {
		word, _ := render.WordOf(family, set.Name)
		protocol, ofPorts := portSets[word]
		for _, e := range set.Entries {
			if ofPorts {
				f.ports[family][service.Frontend{Port: e.Port, Protocol: protocol}] = true
			}
		}
	}
}

// ours reports whether a virtual server is Sluice's.
func (f *frontends) ours(server service.Frontend) bool {
	if f.served[server] || slices.Contains(f.bound, server.Addr) {
		return true
	}
	port := service.Frontend{Port: server.Port, Protocol: server.Protocol}
	return f.ports[service.FamilyOf(server.Addr)][port] && slices.Contains(f.hosts, server.Addr)
}

func (s *cleanup) removeDevice() error {
	d, err := wire.OpenDevice(nil, unix.AF_UNSPEC)
	if err != nil {
		return err
	}
	defer d.Close() // nothing can be lost
	there, err := d.Exists()
	if err != nil || !there {
		return err
	}
	if !s.dry {
		err = d.Delete()
	}
	s.Device = err == nil
	return err
}

// Sets stay in use for a moment after their rules are deleted: with iptables-nft, the kernel frees
// rules only when no packet can use them any more.
const (
	busyPause = 20 * time.Millisecond
	busyTries = 50
)

func (s *cleanup) removeSets(ctx context.Context) error {
	if !hasSets() {
		return nil
	}
	sets, err := wire.OpenSets()
	if err != nil {
		return err
	}
	defer sets.Close() // nothing can be lost
	found, err := sets.List(ctx, isOurs)
	if err != nil {
		return err
	}
	var names []string
	for _, set := range found {
		names = append(names, set.Name)
	}
	if s.dry {
		s.Sets = len(names)
		return nil
	}
	for try := 1; ; try++ {
		var failed []error
		var busy []string
		for i, err := range sets.Destroy(ctx, names) {
			switch {
			case err == nil:
				s.Sets++
			case errors.Is(err, wire.ErrInUse):
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
		if !sleep.For(ctx, busyPause) {
			return errors.Join(failed...)
		}
	}
}

// isOurs reports whether a set has a name that Sluice or kube-proxy uses, in either family.
func isOurs(name string) bool {
	return slices.ContainsFunc(service.Families[:], func(family service.Family) bool {
		_, ours := render.WordOf(family, name)
		return ours
	})
}
