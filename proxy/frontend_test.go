// SPDX-License-Identifier: Apache-2.0

package proxy_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-proxy/sluice/actors"
	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/observe"
	"github.com/sluice-proxy/sluice/proxy"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source"
	"github.com/sluice-proxy/sluice/supervisor"
	"github.com/sluice-proxy/sluice/test/nftmodel"
)

// shadows writes down which Services lack frontends.
type shadows struct {
	mu    sync.Mutex
	lines []string
}

func (*shadows) Supervisor(supervisor.Event[service.Key]) {}
func (*shadows) Actors(actors.Event)                      {}
func (*shadows) Aggregator(aggregator.Event)              {}

func (s *shadows) Source(e source.Shadowed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines = append(s.lines, fmt.Sprintf("%s lacks %v of %s: %v", e.Key.Name, e.Frontends, e.By.Name, !e.Over))
}

func (s *shadows) take() (lines string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	lines, s.lines = strings.Join(s.lines, "\n"), nil
	return lines
}

// TestFrontend_TwoServicesDoNotMix: when an older Service takes a frontend from a younger one and is deleted again, all
// elements of the frontend belong to one Service each time. Every listener is told once of the loss and once of its
// end.
func TestFrontend_TwoServicesDoNotMix(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		domain, told := memoryDomain(nftmodel.NewKernel()), [...]*shadows{{}, {}}
		external := netip.MustParseAddr("192.0.2.1")
		spec := func(i int) *service.Spec {
			s := workSpec(i)
			s.Created = time.Unix(int64(i), 0)
			s.ExternalIPs[service.IPv4] = []netip.Addr{external}
			return s
		}
		var cache *source.Cache
		_, stop := run(t, proxy.Config{
			Listeners: []observe.Listener{told[0], told[1]}, Domains: []proxy.Domain{domain},
			Source: filled(&cache, func(c *source.Cache) {
				c.SetSpec(spec(2))
				c.SetSlice(workSlice(2, 1, 2, 3, 4, 5))
				c.SetSlice(workSlice(1, 1))
				c.Prime()
			}),
		})
		atFrontend := func() (found []string) {
			t.Helper()
			time.Sleep(10 * time.Second)
			synctest.Wait()
			objects, err := domain.Writer.Read(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for i := range objects {
				if strings.HasPrefix(objects[i].ID.Name, string(external.AsSlice())) {
					found = append(found, fmt.Sprintf("%q %s", objects[i].ID, objects[i].Body))
				}
			}
			slices.Sort(found)
			return found
		}
		expectTold := func(want string) {
			t.Helper()
			for _, s := range told {
				if got := s.take(); got != want {
					t.Errorf("told %q, want %q", got, want)
				}
			}
		}
		young := atFrontend()
		expectTold("")

		cache.SetSpec(spec(1))
		old := atFrontend()
		expectTold("s00002 lacks 192.0.2.1:80/tcp of s00001: true")
		if len(old) < 2 || len(young) != len(old)+4 {
			t.Errorf("%d elements of the older Service, %d of the younger one, want four more", len(old), len(young))
		}

		cache.SetSlice(workSlice(2, 1, 2, 3, 4, 6))
		cache.SetSlice(workSlice(2, 1, 2, 3, 4, 5))
		if got := atFrontend(); !slices.Equal(got, old) {
			t.Errorf("a change of the younger Service changes\n%s\nto\n%s", strings.Join(old, "\n"), strings.Join(got, "\n"))
		}
		expectTold("")

		cache.RemoveSpec(spec(1).Key)
		if got := atFrontend(); !slices.Equal(got, young) {
			t.Errorf("the younger Service has\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(young, "\n"))
		}
		expectTold("s00002 lacks 192.0.2.1:80/tcp of s00001: false")
		stop()
	})
}
