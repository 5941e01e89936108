// SPDX-License-Identifier: Apache-2.0

package flows

import (
	"context"
	"os"
	"time"

	"go.uber.org/zap"

	"github.com/sluice-proxy/sluice/dataplane/traffic"
	"github.com/sluice-proxy/sluice/dataplane/userspace"
	"github.com/sluice-proxy/sluice/internal/daemon/config"
	"github.com/sluice-proxy/sluice/internal/daemon/part"
	"github.com/sluice-proxy/sluice/internal/inspect"
	"github.com/sluice-proxy/sluice/observe/metrics"
	"github.com/sluice-proxy/sluice/proxy"
)

// logEndMax bounds the time for the last lines of the flow log.
const logEndMax = time.Second

// Part returns the part that records connections for the flow log and for observers. In userspace mode, registry
// returns the registry of the connections that this process forwards; otherwise nil.
func Part(h *part.Host, registry func() *userspace.Registry) *part.Part {
	hub := New(Config{
		Feed: h.Connections, Snapshot: h.Snapshot, Facts: h.Facts, Keys: h.Keys,
		Relayed: h.Backend.Mode.Forwards, Accounting: h.Options.Sluice.Traffic.Accounting,
		Failed: func(err error) {
			if err != nil {
				h.Log.Warn("cannot record all connections; retrying", zap.Error(err))
			}
		},
	})
	return &part.Part{
		Name: "flows", Run: func(ctx context.Context) error { hub.record(ctx, h, registry); return nil },
		Observer: proxy.ApplyObserver{Programmed: hub.Programmed}, Observe: hub.Observe,
		Metrics: metrics.One("sluice_flows_dropped_total",
			"Records of connections that a flow log or an observer did not get: at least as many are missing.",
			metrics.Total, func() float64 { return float64(hub.Lost()) }),
	}
}

// record records connections once the rules belong to this process, and writes the flow log.
func (h *Hub) record(ctx context.Context, host *part.Host, registry func() *userspace.Registry) {
	t := &host.Options.Sluice.Traffic
	all := t.FlowLog == config.FlowLogAll
	if all || t.FlowLog == config.FlowLogAnnotated {
		wanted := h.Record(Filter{Logged: !all})
		// A file that blocks must not delay the end of the process, or a reload.
		written := make(chan struct{})
		defer func() {
			select {
			case <-written:
			case <-time.After(logEndMax):
			}
		}()
		log := Log{Path: t.FlowLogFile, Standard: os.Stdout, Failed: func(err error) {
			host.Log.Warn("cannot write the flow log; retrying", zap.Error(err))
		}}
		go func() {
			defer close(written)
			log.Write(ctx, wanted)
		}()
	}
	if !part.Came(ctx, host.MayWrite) {
		return
	}
	if r := registry(); r != nil { // which the next server uses as well
		r.Watch(func(d *userspace.Done) { h.Put(flowOf(d)) })
		defer r.Watch(nil)
	}
	h.Run(ctx)
}

// flowOf makes the record of a connection that this process forwarded, or refused.
func flowOf(d *userspace.Done) *traffic.Flow {
	now := time.Now().UTC()
	flow := &traffic.Flow{
		Time: now, Verdict: traffic.Refused, Namespace: d.Port.Service.Namespace, Name: d.Port.Service.Name, Port: d.Port.Name,
		Protocol: d.Port.Protocol.String(), Client: d.Client, Frontend: d.At,
	}
	if d.Connection == nil {
		flow.Reason, flow.Attempts = userspace.Reasons[d.Refused].String(), 1
		return flow
	}
	flow.Verdict, flow.Endpoint = traffic.Closed, d.Target
	flow.Start, flow.End, flow.Counted = d.Began.UTC(), now, true
	flow.BytesIn, flow.BytesOut = d.ToTargets.Load(), d.ToClients.Load()
	return flow
}

// Observe calls each with nil once nothing is missed, and then with each record, until the context ends or each fails.
func (h *Hub) Observe(ctx context.Context, q inspect.FlowQuery, each func(*inspect.FlowEvent) error) error {
	s, err := h.Subscribe(Filter{Namespace: q.Namespace, Name: q.Name, Client: q.Client, Verdicts: q.Verdicts})
	if err != nil {
		return err
	}
	defer s.Close()
	if err := s.Ready(ctx); err != nil {
		return err
	}
	if err := each(nil); err != nil {
		return err
	}
	second := time.NewTicker(time.Second)
	defer second.Stop()
	for {
		var e inspect.FlowEvent
		select {
		case <-ctx.Done():
			return nil
		case e.Flow = <-s.C:
		case <-second.C:
			if err := h.Problem(); err != nil {
				return err
			}
			if e.Omitted = s.Lost(); e.Omitted == 0 {
				continue
			}
			e.Time = time.Now().UTC()
		}
		if err := each(&e); err != nil {
			return err
		}
	}
}
