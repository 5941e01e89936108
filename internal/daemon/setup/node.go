// SPDX-License-Identifier: Apache-2.0

package setup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/sluice-proxy/sluice/dataplane/conntrack"
	"github.com/sluice-proxy/sluice/internal/daemon/backend"
	"github.com/sluice-proxy/sluice/internal/daemon/config"
	"github.com/sluice-proxy/sluice/internal/daemon/logging"
	"github.com/sluice-proxy/sluice/internal/daemon/peer"
	"github.com/sluice-proxy/sluice/internal/host/sysctl"
	"github.com/sluice-proxy/sluice/proxy"
)

// TurnMax bounds the wait for other processes that probe the kernel.
const TurnMax = 10 * time.Second

// PrepareNode sets what must be right before the first rule: the sizes and timeouts of
// connection tracking, without which the proxy does not start, and the process's OOM
// score.
func (o *Options) PrepareNode(files sysctl.Files, log *zap.Logger) error {
	if err := o.PrepareConntrack(files, log); err != nil {
		return err
	}
	if score := o.KubeProxy.OOMScoreAdj; score != nil {
		if err := files.AdjustOOMScore(int(*score)); err != nil {
			log.Info("cannot adjust the OOM score; it remains unchanged", zap.Error(err))
		}
	}
	return nil
}

// PrepareConntrack sets sizes and timeouts, and logs what it changes.
func (o *Options) PrepareConntrack(files sysctl.Files, log *zap.Logger) error {
	if ModeNamed(o.KubeProxy.Mode).Forwards {
		return nil // nothing is translated
	}
	c := &o.KubeProxy.Conntrack
	if _, err := files.Read("net/netfilter/nf_conntrack_max"); errors.Is(err, fs.ErrNotExist) {
		if err := conntrack.Load(context.Background()); err != nil {
			log.Warn("failed to load connection tracking", zap.Error(err))
		}
	}
	changes, err := files.ApplyConntrack(sysctl.Conntrack{
		MaxPerCore: int(*c.MaxPerCore), Min: int(*c.Min), TCPBeLiberal: c.TCPBeLiberal,
		TCPEstablished: c.TCPEstablishedTimeout.Duration, TCPCloseWait: c.TCPCloseWaitTimeout.Duration,
		UDP: c.UDPTimeout.Duration, UDPStream: c.UDPStreamTimeout.Duration,
	})
	for _, c := range changes {
		log.Info("sysctl value changed", zap.String("name", c.Name), zap.String("from", c.From), zap.String("to", c.To))
	}
	if err != nil {
		return fmt.Errorf("connection tracking: %w", err)
	}
	return nil
}

// accounting is the sysctl of traffic.accounting.
const (
	accounting       = "net/netfilter/nf_conntrack_acct"
	adviceAccounting = "set it yourself, run privileged, once is enough (--init-only), or do without (traffic.accounting: false)"
)

// PrepareAccounting makes the kernel count packets and bytes of connections if the configuration enables that, and
// otherwise restores the value from before a configuration that did. The proxy also serves without it.
func (o *Options) PrepareAccounting(mode Mode, files sysctl.Files, log *zap.Logger) {
	if !o.Sluice.Traffic.Accounting || mode.Forwards {
		restored(log, files, accounting)
		return
	}
	changed, err := files.Optional().Ensure(accounting, "1", adviceAccounting)
	switch {
	case err != nil:
		log.Warn("cannot count packets and bytes of connections", zap.Error(err))
	case changed && !files.Planning():
		log.Info("sysctl value changed", zap.String("name", "net.netfilter.nf_conntrack_acct"), zap.String("to", "1"))
	}
}

// SetARP sets the kernel parameters that userspace mode needs. The mode also serves without them.
func (o *Options) SetARP(files sysctl.Files, log *zap.Logger) {
	if err := backend.SetUserspace(o.userspace(files, log)); err != nil {
		log.Warn("Service addresses may answer ARP requests on this node", zap.Error(err))
	}
}

// RestoreARP restores the settings about ARP that a previous configuration needed and the one of this mode does not.
// Local addresses of another mode must have been removed.
func (o *Options) RestoreARP(mode Mode, files sysctl.Files, log *zap.Logger) {
	if o.restoresARP(mode) {
		restored(log, files, backend.ARP()...)
	}
}

// restoresARP reports whether a mode needs none of the settings about ARP.
func (o *Options) restoresARP(mode Mode) bool {
	return !slices.ContainsFunc(o.kept(mode), func(p backend.Parameter) bool { return slices.Contains(backend.ARP(), p.Path) })
}

// restored restores sysctls that a previous configuration set, and logs that.
func restored(log *zap.Logger, files sysctl.Files, sysctls ...string) {
	done, err := files.Restore(sysctls...)
	for _, d := range done {
		if d.Kept != "" {
			log.Info("sysctl value kept; another process set it", zap.String("name", d.Name), zap.String("value", d.Kept))
		} else {
			log.Info("sysctl value restored", zap.String("name", d.Name), zap.String("from", d.From), zap.String("to", d.To))
		}
	}
	if err != nil {
		log.Warn("failed to restore sysctl values of a previous configuration", zap.Error(err))
	}
}

// Sysctls returns the kernel's settings with a record of their previous values, for the cleanup. The settings of a
// sandbox vanish with it, and need no record.
func (o *Options) Sysctls(log *zap.Logger) sysctl.Files {
	if o.Sandboxed || o.Dry != nil {
		return sysctl.Files{Plan: o.Dry}
	}
	return sysctl.Files{Record: sysctl.NewRecord(o.Sluice.State.Dir, func(err error) {
		log.Warn("cannot record original sysctl values; cleanup will not restore them", zap.Error(err))
	})}
}

// Initialize does once what needs full privileges, for --init-only. A later process with
// fewer privileges finds it done.
func Initialize(ctx context.Context, o *Options) error {
	log, err := logging.New(o.Log())
	if err != nil {
		return err
	}
	defer peer.Turn(ctx, TurnMax)()
	files := o.Sysctls(log.Logger)
	if err := o.PrepareConntrack(files, log.Logger); err != nil {
		return err
	}
	asked := ModeNamed(o.KubeProxy.Mode)
	o.PrepareAccounting(asked, files, log.Logger)
	if asked.Forwards {
		o.RestoreARP(asked, files, log.Logger) // with userspace.answerARP
	}
	// The backend is chosen as it will be when it serves, so that the loopback addresses are not opened in vain if that
	// is nftables mode.
	from := &start{Options: o, files: files, log: log.Logger}
	_, _, err = backend.Build(o.KubeProxy.Mode, nil, func(mode config.Mode, whole bool) ([]proxy.Domain, error) {
		return nil, ModeNamed(mode).prepare(ctx, from, whole)
	})
	return err
}
