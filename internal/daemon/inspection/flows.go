package inspection

import (
	"context"
	"time"

	"github.com/sluice-proxy/sluice/internal/daemon/flows"
	"github.com/sluice-proxy/sluice/internal/inspect"
)

// Observe calls each with nil once nothing is missed, and then with each record, until the context ends or each fails.
func (i *Inspection) Observe(ctx context.Context, q inspect.FlowQuery, each func(*inspect.FlowEvent) error) error {
	s, err := i.Flows.Subscribe(flows.Filter{Namespace: q.Namespace, Name: q.Name, Client: q.Client, Verdicts: q.Verdicts})
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
			if err := i.Flows.Problem(); err != nil {
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
