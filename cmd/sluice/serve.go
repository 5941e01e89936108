package main

import (
	"context"
	"errors"

	"go.uber.org/zap"

	proxy "github.com/sluice-proxy/sluice"
	"github.com/sluice-proxy/sluice/dataplane/hostaddress"
	"github.com/sluice-proxy/sluice/internal/backend"
	"github.com/sluice-proxy/sluice/observe"
	"github.com/sluice-proxy/sluice/service"
)

// feed makes a source once the logger and the settings are known.
type feed func(log *zap.Logger, settings proxy.NodeSettings) proxy.Source

// serve runs the proxy until the context ends; the options have been checked.
func serve(ctx context.Context, o *options, from feed) (err error) {
	log, err := o.log.logger()
	if err != nil {
		return err
	}
	defer func() { _ = log.Sync() }() // standard error cannot always be flushed
	mode, domains, err := o.domains(ctx, log)
	if err != nil {
		return err
	}
	if o.ready != nil {
		o.ready(mode)
	}
	settings, err := o.settings(mode)
	if err != nil {
		return err
	}
	config := proxy.Config{
		Node: settings, Domains: domains, Source: from(log, settings),
		Listeners: []observe.Listener{observe.NewLog(log)}, NodeWait: o.nodeWait,
		Warn: func(w service.Warning) {
			log.Warn("part of an object cannot be used", zap.String("object", w.Object), zap.String("field", w.Field), zap.String("problem", w.Problem))
		},
	}
	if len(settings.NodePortRanges) > 0 {
		config.HostAddresses = hostaddress.Watch
	}
	p, err := proxy.New(config)
	if err != nil {
		return usageError{err}
	}
	log.Info("serving", zap.String("mode", string(mode)), zap.String("node", settings.Name), zap.Int("domains", len(domains)), zap.String("version", version))
	go leaveOtherModes(ctx, p, mode, log)
	if err := p.Run(ctx); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	if o.sandboxed {
		log.Info("stopped; the sandbox and its rules are gone")
	} else {
		log.Info("stopped; the rules stay in the kernel")
	}
	return nil
}

// leaveOtherModes removes what other modes have left, once nobody depends on it.
func leaveOtherModes(ctx context.Context, p *proxy.Proxy, mode backend.Mode, log *zap.Logger) {
	select {
	case <-p.InForce():
	case <-ctx.Done():
		return
	}
	if err := backend.CleanUpOthers(ctx, mode, log); err != nil && ctx.Err() == nil {
		log.Warn("rules of another mode remain, which take part in deciding about packets; remove them with sluice cleanup", zap.Error(err))
	}
}

// domains builds the domains of the backend that is asked for, and tells which it
// is.
func (o *options) domains(ctx context.Context, log *zap.Logger) (backend.Mode, []proxy.Domain, error) {
	return backend.Build(o.mode, log,
		func() ([]proxy.Domain, error) {
			return backend.NFTables(ctx, backend.NFTablesOptions{MasqueradeBit: o.masqueradeBit, LocalPorts: o.localPorts, Log: log})
		},
		func() ([]proxy.Domain, error) {
			choice, err := o.iptables()
			if err != nil {
				return nil, err
			}
			choice.Log = log
			return backend.IPTables(ctx, choice)
		})
}

// iptables gives the options of iptables mode, but for the logger.
func (o *options) iptables() (backend.IPTablesOptions, error) {
	settings, err := o.settings(backend.ModeIPTables)
	return backend.IPTablesOptions{
		Variant: o.variant, MasqueradeBit: o.masqueradeBit, LocalhostNodePorts: settings.LocalhostNodePorts, PrivateLock: o.sandboxed,
	}, err
}
