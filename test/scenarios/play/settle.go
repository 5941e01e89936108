package play

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/scenarios/fixture"
)

// settleStep is the pause between two looks at the sentinel.
const settleStep = 5 * time.Millisecond

// sentinel is a Service that changes whenever anything has, and so tells when the
// proxy has obeyed, however the proxy works: its port and its endpoint are
// others in each round.
const sentinel = "sentinel"

// settle waits until the rules have followed the API.
func (s *Stage) settle(ctx context.Context) error {
	s.round++
	port, endpoint := uint16(20000+s.round), []string{"a", "b"}[s.round%2]
	if err := s.ChangeService(sentinel, []string{"clusterips=sentinel", fmt.Sprintf("ports=p:%d", port)}); err != nil {
		return err
	}
	if err := s.SetSlice("main", []string{"of=" + sentinel, endpoint}); err != nil {
		return err
	}
	deadline := time.Now().Add(settleMax)
	for _, family := range s.families {
		q := fixture.Question{
			Family: family, From: "p1", Protocol: service.TCP, Patience: sentinelPatience,
			To: netip.AddrPortFrom(fixture.MustAddress(family, "sentinel"), port),
		}
		for {
			got, err := s.Ask(ctx, q)
			if err == nil && got.Name == endpoint {
				break
			}
			if ended := s.alive(); ended != nil {
				return ended
			}
			if time.Now().After(deadline) {
				return fmt.Errorf("the proxy has not obeyed the last change within %v: the sentinel's %v got %v, %v", settleMax, q, got, err)
			}
			if err := sleep(ctx, settleStep); err != nil {
				return err
			}
		}
	}
	return sleep(ctx, settleRest)
}

// alive is an error if the proxy has ended where it is a process, so that nobody
// waits for one that is gone.
func (s *Stage) alive() error {
	if process, ok := s.World.(interface{ Alive() error }); ok {
		return process.Alive()
	}
	return nil
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
