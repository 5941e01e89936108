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

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/ipvs/genl"
)

// PrepareIPVS sets what IPVS mode needs of the kernel: parameters and timeouts; and
// finds out whether it has the scheduler, which may load its module. It needs more
// privilege than serving, and finds done what was done before.
func PrepareIPVS(ctx context.Context, o IPVSOptions) error {
	socket, err := genl.Open()
	if err != nil {
		return err
	}
	defer func() { _ = socket.Close() }() // nothing is left to be said over it
	if err := setIPVS(o); err != nil {
		return err
	}
	if err := setTimeouts(ctx, socket, o.Timeouts); err != nil {
		o.Log.Error("timeouts of IPVS stay as they are", zap.Error(err))
	}
	if err := hasScheduler(ctx, socket, o.Scheduler); err != nil {
		return fmt.Errorf("ipvs.scheduler %q: %w", o.Scheduler, err)
	}
	return nil
}

// parameter is one that IPVS mode needs.
type parameter struct{ path, value, advice string }

const adviceIPVS = "set it yourself, or run privileged"

// parameters are those of IPVS mode. The kernel of each network namespace has them
// once it has loaded IPVS.
func (o *IPVSOptions) parameters() []parameter {
	all := []parameter{
		// Without, masquerading and the rules about marks miss what IPVS forwards.
		{"net/ipv4/vs/conntrack", "1", adviceIPVS},
		// With their real server gone, connections end instead of being lost.
		{"net/ipv4/vs/expire_nodest_conn", "1", adviceIPVS},
		// Affinity to an endpoint that drains ends.
		{"net/ipv4/vs/expire_quiescent_template", "1", adviceIPVS},
		{"net/ipv4/ip_forward", "1", adviceIPVS},
	}
	if o.StrictARP {
		const advice = "set it yourself, run privileged, or do without (ipvs.strictARP: false)"
		all = append(all, parameter{"net/ipv4/conf/all/arp_ignore", "1", advice},
			parameter{"net/ipv4/conf/all/arp_announce", "2", advice})
	}
	return all
}

// setIPVS sets the parameters that differ.
func setIPVS(o IPVSOptions) error {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return fmt.Errorf("find out the kernel's release: %w", err)
	}
	all := o.parameters()
	release := unix.ByteSliceToString(name.Release[:])
	switch choice := reuseChoice(release); choice {
	case reuseOff:
		o.Log.Info("connections that reuse a port keep their endpoint: this kernel delays them by a second otherwise "+
			"(net.ipv4.vs.conn_reuse_mode=0, Linux 4.1 to 5.8)", zap.String("kernel", release))
		all = append(all, parameter{"net/ipv4/vs/conn_reuse_mode", "0", adviceIPVS})
	case reuseUnknown:
		o.Log.Error("connections that reuse a port may be delayed by a second: "+
			"net.ipv4.vs.conn_reuse_mode takes Linux 4.1", zap.String("kernel", release))
	case reuseAsIs:
		o.Log.Info("connections that reuse a port are scheduled anew, as the kernel does by itself "+
			"(net.ipv4.vs.conn_reuse_mode is left as it is from Linux 5.9 on)", zap.String("kernel", release))
	}
	for _, p := range all {
		changed, err := o.Sysctls.Ensure(p.path, p.value, p.advice)
		if err != nil {
			return fmt.Errorf("IPVS mode: %w", err)
		}
		if changed {
			o.Log.Info("kernel setting changed", zap.String("name", strings.ReplaceAll(p.path, "/", ".")), zap.String("to", p.value))
		}
	}
	return nil
}

// reuse is what to do about conn_reuse_mode.
type reuse int

const (
	// reuseAsIs: a connection that reuses a port of one that is closing is
	// scheduled anew, at once.
	reuseAsIs reuse = iota
	// reuseOff: it would be, a second late, as its first packet is dropped.
	reuseOff
	// reuseUnknown: there is no such parameter.
	reuseUnknown
)

// reuseChoice chooses by the kernel's release, like "6.1.0-18-amd64". One that is not
// understood counts as new.
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

// setTimeouts sets the timeouts that are given.
func setTimeouts(ctx context.Context, socket *genl.Socket, t genl.Timeouts) error {
	if t == (genl.Timeouts{}) {
		return nil
	}
	return socket.SetTimeouts(ctx, t)
}

// probeFrontend is where the scheduler is tried, as by kube-proxy: an address from a
// range for documentation (RFC 5737), which nobody has.
var probeFrontend = dataplane.Frontend{Addr: netip.MustParseAddr("198.51.100.0"), Port: 20000}

// hasScheduler finds out whether the kernel has a scheduler: one that is in use it
// has, others are tried.
func hasScheduler(ctx context.Context, socket *genl.Socket, name string) error {
	services, err := socket.Services(ctx)
	if err != nil {
		return err
	}
	for _, s := range services {
		if s.Scheduler == name && s.Frontend != probeFrontend {
			return nil
		}
	}
	// The first removes what somebody left who was killed here.
	done := socket.Do(ctx, []genl.Request{
		genl.DelService(probeFrontend),
		genl.NewService(genl.Service{Frontend: probeFrontend, Scheduler: name}),
		genl.DelService(probeFrontend),
	})
	if err := done[1]; err != nil {
		var refusal *genl.Refusal
		if errors.As(err, &refusal) && refusal.Errno == unix.ENOENT {
			return fmt.Errorf("the kernel has no such scheduler: its module ip_vs_%s is missing or cannot be loaded", name)
		}
		return err
	}
	return done[2]
}
