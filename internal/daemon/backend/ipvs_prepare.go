// SPDX-License-Identifier: Apache-2.0

package backend

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	ipvswire "github.com/sluice-proxy/sluice/dataplane/ipvs/wire"
	"github.com/sluice-proxy/sluice/internal/host/sysctl"
	"github.com/sluice-proxy/sluice/service"
)

// PrepareIPVS sets the kernel parameters and timeouts that IPVS mode needs, and checks that the kernel has the
// scheduler, which may load its module. It needs more privilege than serving. After an error, it does not undo what it
// has set.
func PrepareIPVS(ctx context.Context, o IPVSOptions) error {
	servers, err := ipvswire.OpenServers()
	if err != nil {
		return err
	}
	defer servers.Close() // nothing can be lost
	if err := setIPVS(o); err != nil {
		return err
	}
	if o.DryRun {
		return nil // checking the scheduler may create a virtual server
	}
	if o.Sysctls.Planning() {
		return hasScheduler(ctx, servers, o.Scheduler)
	}
	if err := servers.SetTimeouts(o.Timeouts); err != nil {
		o.Log.Error("failed to set IPVS timeouts; keeping the current values", zap.Error(err))
	}
	if err := hasScheduler(ctx, servers, o.Scheduler); err != nil {
		return fmt.Errorf("ipvs.scheduler %q: %w", o.Scheduler, err)
	}
	return nil
}

// Parameter is a kernel parameter that a mode needs, by its path below /proc/sys. Advice says what to do if it cannot be
// set.
type Parameter struct{ Path, Value, Advice string }

const adviceIPVS = "set it yourself, or run privileged"

// Parameters returns those of IPVS mode. Each network namespace has them once the kernel has loaded IPVS.
func (o *IPVSOptions) Parameters() []Parameter {
	all := []Parameter{
		// Without it, masquerading and the rules about marks miss what IPVS forwards.
		{"net/ipv4/vs/conntrack", "1", adviceIPVS},
		// Connections end with their real server, instead of hanging.
		{"net/ipv4/vs/expire_nodest_conn", "1", adviceIPVS},
		// Affinity to an endpoint that drains ends.
		{"net/ipv4/vs/expire_quiescent_template", "1", adviceIPVS},
		{"net/ipv4/ip_forward", "1", adviceIPVS},
	}
	if o.StrictARP {
		all = append(all, strictARP("set it yourself, run privileged, or do without (ipvs.strictARP: false)")...)
	}
	return all
}

// StrictARP returns the parameters of userspace mode.
func StrictARP() []Parameter {
	return strictARP("set it yourself, run privileged, once is enough (--init-only), or do without (userspace.answerARP: true)")
}

// strictARP returns the parameters that keep the host from answering ARP requests for addresses that the interface does
// not have, and from sending some with such a source.
func strictARP(advice string) []Parameter {
	return []Parameter{{"net/ipv4/conf/all/arp_ignore", "1", advice}, {"net/ipv4/conf/all/arp_announce", "2", advice}}
}

// ARP returns the sysctls that strictARP names, to restore for a configuration that does not set them.
func ARP() (paths []string) {
	for _, p := range strictARP("") {
		paths = append(paths, p.Path)
	}
	return paths
}

// ensure sets the parameters that differ, and calls changed for each.
func ensure(files sysctl.Files, parameters []Parameter, changed func(sysctl.Change)) error {
	for _, p := range parameters {
		set, err := files.Ensure(p.Path, p.Value, p.Advice)
		if err != nil {
			return err
		}
		if set && !files.Planning() {
			changed(sysctl.Change{Name: strings.ReplaceAll(p.Path, "/", "."), To: p.Value})
		}
	}
	return nil
}

// setIPVS sets the parameters that differ.
func setIPVS(o IPVSOptions) error {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return fmt.Errorf("find out the kernel's release: %w", err)
	}
	all := o.Parameters()
	release := unix.ByteSliceToString(name.Release[:])
	switch choice := reuseChoice(release); choice {
	case reuseOff:
		o.Log.Info("connections that reuse a port keep their endpoint: this kernel delays them by a second otherwise "+
			"(net.ipv4.vs.conn_reuse_mode=0, Linux 4.1 to 5.8)", zap.String("kernel", release))
		all = append(all, Parameter{"net/ipv4/vs/conn_reuse_mode", "0", adviceIPVS})
	case reuseUnknown:
		o.Log.Error("connections that reuse a source port may be delayed by one second", zap.String("kernel", release))
	case reuseAsIs:
		o.Log.Info("connections that reuse a port are scheduled again, the default of the kernel "+
			"(net.ipv4.vs.conn_reuse_mode is left as it is from Linux 5.9 on)", zap.String("kernel", release))
	}
	err := ensure(o.Sysctls, all, func(c sysctl.Change) {
		o.Log.Info("sysctl value changed", zap.String("name", c.Name), zap.String("to", c.To))
	})
	if err != nil {
		return fmt.Errorf("IPVS mode: %w", err)
	}
	return nil
}

// reuse is the choice for conn_reuse_mode.
type reuse int

const (
	// reuseAsIs: a connection that reuses a port of one that is closing is
	// scheduled again, immediately.
	reuseAsIs reuse = iota
	// reuseOff: it keeps its endpoint. Scheduled again, it would be a second late, because its first packet is dropped.
	reuseOff
	// reuseUnknown: the parameter does not exist.
	reuseUnknown
)

// reuseChoice chooses by the kernel's release, such as "6.1.0-18-amd64". One that it
// cannot parse counts as new.
func reuseChoice(release string) reuse {
	parts := strings.FieldsFunc(release, func(r rune) bool { return r < '0' || r > '9' })
	if len(parts) < 2 {
		return reuseAsIs
	}
	major, majorErr := strconv.Atoi(parts[0])
	minor, minorErr := strconv.Atoi(parts[1])
	switch {
	case majorErr != nil || minorErr != nil:
		return reuseAsIs
	case major < 4 || major == 4 && minor < 1:
		return reuseUnknown
	case major < 5 || major == 5 && minor < 9:
		return reuseOff
	}
	return reuseAsIs
}

// probeFrontend is where the scheduler is tried, as kube-proxy does: an address from a
// range for documentation (RFC 5737), which is never in use.
var probeFrontend = service.Frontend{Addr: netip.MustParseAddr("198.51.100.0"), Port: 20000}

// hasScheduler checks that the kernel has a scheduler. It tries one that is not in use.
func hasScheduler(ctx context.Context, servers *ipvswire.Servers, name string) error {
	services, err := servers.Services(ctx)
	if err != nil {
		return err
	}
	for _, s := range services {
		if s.Scheduler == name && s.Frontend != probeFrontend {
			return nil
		}
	}
	changes, err := ipvswire.OpenServerWriter()
	if err != nil {
		return err
	}
	defer changes.Close() // nothing can be lost
	probe := ipvswire.Service{Frontend: probeFrontend, Scheduler: name}
	results := changes.Do(ctx, []ipvswire.Request{
		{Verb: ipvswire.DelService, Service: probe}, // a process that was killed here may have left one
		{Verb: ipvswire.NewService, Service: probe},
		{Verb: ipvswire.DelService, Service: probe},
	})
	switch left, made, gone := results[0], results[1], results[2]; {
	case left != nil && !ipvswire.Missing(left):
		return left
	case errors.Is(made, unix.ENOENT):
		return fmt.Errorf("scheduler not available: kernel module ip_vs_%s is missing or cannot be loaded", name)
	case made != nil:
		return made
	default:
		return gone
	}
}
