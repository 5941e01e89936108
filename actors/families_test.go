package actors

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// busy is a kernel that is too busy to say what drains, until a time.
type busy struct{ until time.Time }

func (busy) Busy(context.Context, *service.View, *service.PortView, service.Endpoint) (bool, error) {
	return false, nil
}

func (b busy) Held(context.Context, *service.View, *service.PortView) ([]service.Endpoint, error) {
	if time.Now().Before(b.until) {
		return nil, dataplane.ErrBusy
	}
	return nil, nil
}

// TestAFamilyDoesNotWaitForTheOther: while the kernel of IPv4 is too busy to answer, the
// fragments for IPv6, which asks nothing or is answered, come at once. That for IPv4 comes
// as soon as there is an answer.
func TestAFamilyDoesNotWaitForTheOther(t *testing.T) {
	for what, other := range map[string]Drainer{"asks nothing": nil, "is answered": busy{}} {
		synctest.Test(t, func(t *testing.T) {
			v := build(t, 0)
			began, came := time.Now(), map[string]time.Duration{}
			output := func(name string, drainer Drainer, family service.Family) Output {
				return Output{Name: name, Renderer: renderer{}, Family: family, Drain: drainer,
					Submit: func(*dataplane.Fragment) {
						v.mu.Lock()
						defer v.mu.Unlock()
						came[name] = time.Since(began)
					}}
			}
			d, err := NewDirectory(Config{Starter: v, State: v, Outputs: []Output{
				output("ipvs/IPv4", busy{began.Add(20 * time.Second)}, service.IPv4), output("ipvs/IPv6", other, service.IPv6),
			}})
			if err != nil {
				t.Fatal(err)
			}
			v.Directory = d
			v.set(web, dual())
			time.Sleep(2 * time.Minute)
			v.mu.Lock()
			defer v.mu.Unlock()
			if four, six := came["ipvs/IPv4"], came["ipvs/IPv6"]; six > 0 || four < 20*time.Second || four > 21*time.Second {
				t.Errorf("IPv6 %s: IPv4 got its fragment after %v, IPv6 after %v", what, four, six)
			}
		})
	}
}

// dual returns a Service of both families.
func dual() *service.Spec {
	s := spec()
	s.ClusterIPs[service.IPv6] = s.ClusterIPs[service.IPv4]
	return s
}
