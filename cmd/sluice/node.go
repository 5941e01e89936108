package main

import (
	"context"
	"fmt"

	"go.uber.org/zap"

	proxy "github.com/sluice-proxy/sluice"
	"github.com/sluice-proxy/sluice/dataplane/iptables"
	"github.com/sluice-proxy/sluice/internal/daemon/backend"
	"github.com/sluice-proxy/sluice/internal/daemon/rival"
	"github.com/sluice-proxy/sluice/internal/host/sysctl"
)

// prepareNode sets what the kernel and this process need before the first rule: the
// sizes and timeouts of connection tracking, without which the proxy does not
// start, and how much the process is worth when memory runs out.
func (s *server) prepareNode() error {
	if err := s.prepareConntrack(s.sysctls, s.log.Logger); err != nil {
		return err
	}
	if score := s.KubeProxy.OOMScoreAdj; score != nil {
		if err := s.sysctls.AdjustOOMScore(int(*score)); err != nil {
			s.log.Info("the score for when memory runs out stays as it is", zap.Error(err))
		}
	}
	return nil
}

// prepareConntrack sets sizes and timeouts, and logs what it changes.
func (o *options) prepareConntrack(files sysctl.Files, log *zap.Logger) error {
	changes, err := files.ApplyConntrack(o.conntrackSettings())
	for _, c := range changes {
		log.Info("kernel setting changed", zap.String("name", c.Name), zap.String("from", c.From), zap.String("to", c.To))
	}
	if err != nil {
		return fmt.Errorf("connection tracking: %w", err)
	}
	return nil
}

// recorded gives the kernel's settings, with a record of what they were before, for
// the clean-up. What is set in a sandbox goes with it, and needs none.
func (o *options) recorded(log *zap.Logger) sysctl.Files {
	if o.sandboxed {
		return sysctl.Files{}
	}
	return sysctl.Files{Record: sysctl.NewRecord(o.Sluice.State.Dir, func(err error) {
		log.Warn("a clean-up will leave kernel settings as they are set now: what they were before cannot be recorded "+
			"(state.dir, --sluice-state-dir)", zap.Error(err))
	})}
}

// conntrackSettings are those of the section conntrack.
func (o *options) conntrackSettings() sysctl.Conntrack {
	c := &o.KubeProxy.Conntrack
	return sysctl.Conntrack{
		MaxPerCore: int(*c.MaxPerCore), Min: int(*c.Min), TCPBeLiberal: c.TCPBeLiberal,
		TCPEstablished: c.TCPEstablishedTimeout.Duration, TCPCloseWait: c.TCPCloseWaitTimeout.Duration,
		UDP: c.UDPTimeout.Duration, UDPStream: c.UDPStreamTimeout.Duration,
	}
}

// initialise does what needs privilege and is done once, for --init-only; a second
// process with fewer privileges finds it done.
func (o *options) initialise(ctx context.Context) error {
	log, err := newLogger(o.Log())
	if err != nil {
		return err
	}
	defer func() { _ = log.Sync() }() // standard error cannot always be flushed
	defer rival.Turn(ctx, assembling)()
	files := o.recorded(log.Logger)
	if err := o.prepareConntrack(files, log.Logger); err != nil {
		return err
	}
	// The backend that will serve is found out as it will be then: nftables mode
	// must not open the loopback addresses for nothing.
	_, _, err = backend.Build(o.mode(), nil, backend.Builders{
		NFTables: func() ([]proxy.Domain, error) {
			return backend.NFTables(ctx, backend.NFTablesOptions{MasqueradeBit: o.MasqueradeBit(), Log: zap.NewNop()})
		},
		IPTables: func() ([]proxy.Domain, error) {
			choice, err := o.iptables()
			if err == nil && choice.LocalhostNodePorts {
				_, err = iptables.EnsureRouteLocalnet(files)
			}
			return nil, err
		},
		IPVS: func() ([]proxy.Domain, error) { return nil, backend.PrepareIPVS(ctx, o.ipvs(files, log.Logger)) },
	})
	return err
}
