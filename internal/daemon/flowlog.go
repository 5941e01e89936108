package daemon

import (
	"context"
	"os"
	"time"

	"go.uber.org/zap"

	"github.com/sluice-proxy/sluice/dataplane/traffic"
	"github.com/sluice-proxy/sluice/dataplane/userspace"
	"github.com/sluice-proxy/sluice/internal/daemon/config"
	"github.com/sluice-proxy/sluice/internal/daemon/flows"
	"github.com/sluice-proxy/sluice/service"
)

// logEndMax bounds the time for the last lines of the flow log.
const logEndMax = time.Second

// newFlows makes what records connections. The proxy comes later, and before the first question.
func (s *server) newFlows() *flows.Hub {
	return flows.New(flows.Config{
		Feed:     s.connections,
		Snapshot: func(key service.Key) service.Snapshot { return s.proxy.Snapshot(key) },
		Facts:    func() *service.NodeFacts { return s.proxy.Facts() },
		Keys:     func() []service.Key { return s.proxy.Keys() },
		Relayed:  s.backend.Mode == config.ModeUserspace, Accounting: s.options.Sluice.Traffic.Accounting,
		Failed: func(err error) {
			if err != nil {
				s.log.Warn("cannot record all connections; retrying", zap.Error(err))
			}
		},
	})
}

// flowOf makes the record of a connection that this process forwarded, or refused.
func flowOf(d *userspace.Done) *traffic.Flow {
	now := time.Now().UTC()
	flow := &traffic.Flow{
		Time: now, Verdict: traffic.Refused, Namespace: d.Port.Service.Namespace, Name: d.Port.Service.Name, Port: d.Port.Name,
		Protocol: d.Port.Protocol.String(), Client: d.Client, Frontend: d.At,
	}
	if d.Connection == nil {
		flow.Reason, flow.Attempts = reasons[d.Refused].String(), 1
		return flow
	}
	flow.Verdict, flow.Endpoint = traffic.Closed, d.Target
	flow.Start, flow.End, flow.Counted = d.Began.UTC(), now, true
	flow.BytesIn, flow.BytesOut = d.ToTargets.Load(), d.ToClients.Load()
	return flow
}

// recordFlows records connections once the rules belong to this process, and writes the flow log.
func (s *server) recordFlows(ctx context.Context) {
	t := &s.options.Sluice.Traffic
	all := t.FlowLog == config.FlowLogAll || s.backend.Mode == config.ModeUserspace && s.options.Sluice.Userspace.AccessLog
	if all || t.FlowLog == config.FlowLogAnnotated {
		wanted := s.flows.Record(flows.Filter{Logged: !all})
		// A file that blocks must not hold up the end of the process, or another configuration.
		written := make(chan struct{})
		defer func() {
			select {
			case <-written:
			case <-time.After(logEndMax):
			}
		}()
		log := flows.Log{Path: t.FlowLogFile, Standard: os.Stdout, Failed: func(err error) {
			s.log.Warn("cannot write the flow log; retrying", zap.Error(err))
		}}
		go func() {
			defer close(written)
			log.Write(ctx, wanted)
		}()
	}
	select {
	case <-s.life.owner.mayWrite:
	case <-ctx.Done():
		return
	}
	if r := s.life.forwarders.Registry(); r != nil { // which another configuration has as well
		r.Watch(func(d *userspace.Done) { s.flows.Put(flowOf(d)) })
		defer r.Watch(nil)
	}
	s.flows.Run(ctx)
}
