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
	settings, err := o.settings()
	if err != nil {
		return err
	}
	log, err := o.log.logger()
	if err != nil {
		return err
	}
	defer func() { _ = log.Sync() }() // standard error cannot always be flushed
	domains, err := o.domains(ctx, settings, log)
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
	log.Info("serving", zap.String("node", settings.Name), zap.Int("domains", len(domains)), zap.String("version", version))
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

// domains builds the domains of the chosen backend.
func (o *options) domains(ctx context.Context, settings proxy.NodeSettings, log *zap.Logger) ([]proxy.Domain, error) {
	if o.mode == modeNFTables {
		return backend.NFTables(ctx, backend.NFTablesOptions{MasqueradeBit: o.masqueradeBit, Log: log})
	}
	choice := o.iptables(settings)
	choice.Log = log
	return backend.IPTables(ctx, choice)
}
