package main

import (
	"context"
	"fmt"

	"go.uber.org/zap"

	proxy "github.com/sluice-proxy/sluice"
	"github.com/sluice-proxy/sluice/dataplane/iptables"
	"github.com/sluice-proxy/sluice/internal/backend"
	"github.com/sluice-proxy/sluice/internal/sysctl"
)

// prepareNode sets what the kernel and this process need before the first rule: the
// sizes and timeouts of connection tracking, without which the proxy does not
// start, and how much the process is worth when memory runs out.
func (s *server) prepareNode() error {
	changes, err := sysctl.Files{}.ApplyConntrack(s.conntrackSettings())
	for _, c := range changes {
		s.log.Info("kernel setting changed", zap.String("name", c.Name), zap.String("from", c.From), zap.String("to", c.To))
	}
	if err != nil {
		return fmt.Errorf("connection tracking: %w", err)
	}
	if score := s.KubeProxy.OOMScoreAdj; score != nil {
		if err := (sysctl.Files{}).AdjustOOMScore(int(*score)); err != nil {
			s.log.Info("the score for when memory runs out stays as it is", zap.Error(err))
		}
	}
	return nil
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
	if _, err := (sysctl.Files{}).ApplyConntrack(o.conntrackSettings()); err != nil {
		return fmt.Errorf("connection tracking: %w", err)
	}
	// The backend that will serve is found out as it will be then: nftables mode
	// must not open the loopback addresses for nothing.
	_, _, err := backend.Build(o.mode(), zap.NewNop(),
		func() ([]proxy.Domain, error) {
			return backend.NFTables(ctx, backend.NFTablesOptions{MasqueradeBit: o.MasqueradeBit(), Log: zap.NewNop()})
		},
		func() ([]proxy.Domain, error) {
			choice, err := o.iptables()
			if err == nil && choice.LocalhostNodePorts {
				_, err = iptables.EnsureRouteLocalnet()
			}
			return nil, err
		})
	return err
}
