package health

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/service"
)

// TestWhoWaitsLivesAndServesNobody: /livez is 200 however long the wait takes, /healthz is
// 503; and what the wait has held up counts from its end on.
func TestWhoWaitsLivesAndServesNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		standby := Standby{For: "pid 7", Since: time.Now()}
		m, err := NewMonitor(Config{
			Domains: func() []Domain { return []Domain{{Status: aggregator.Status{Domain: "d", Missing: 1}}} },
			Node:    func() *service.NodeObject { return fine },
			Standby: func() Standby { return standby },
		})
		must(t, err)
		check := func(path string, code int, healthy bool) {
			t.Helper()
			w := httptest.NewRecorder()
			newHandler(m, func(string, int) {}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
			var a answer
			if err := json.Unmarshal(w.Body.Bytes(), &a); err != nil || w.Code != code || a.Healthy != healthy {
				t.Errorf("%s: %d %s, want %d and healthy %v", path, w.Code, w.Body, code, healthy)
			}
		}
		time.Sleep(time.Hour)
		check("/livez", 200, true)
		check("/healthz", 503, false)
		standby = Standby{Since: time.Now()}
		time.Sleep(time.Minute - 1)
		check("/livez", 200, true)
		check("/healthz", 200, true)
		time.Sleep(time.Nanosecond)
		check("/livez", 503, false)
		check("/healthz", 503, false)
	})
}

// TestAnAddressThatIsHandedOver is no reason to end, not even with HardFail, and is taken
// soon; one that is not is.
func TestAnAddressThatIsHandedOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		var handing atomic.Bool
		handing.Store(true)
		time.AfterFunc(time.Second, func() { handing.Store(false) })
		tries, listened, failed := 0, 0, 0
		s, err := NewServer(ServerConfig{
			Address: netip.MustParseAddrPort("0.0.0.0:10256"), Monitor: quietMonitor(t), HardFail: true,
			Handing: handing.Load, Failed: func(error) { failed++ },
			Listening: func(err error) {
				if errors.Is(err, unix.EADDRINUSE) {
					listened++
				}
			},
			Inside: func(func() error) error { tries++; return unix.EADDRINUSE },
		})
		must(t, err)
		err = s.Run(t.Context())
		if !errors.Is(err, unix.EADDRINUSE) || failed != 1 || tries < 10 || tries > 12 || listened != tries || time.Since(begin) > 1100*time.Millisecond {
			t.Errorf("%v after %v, %d tries, told %d times, and %d times that it ends", err, time.Since(begin), tries, listened, failed)
		}
	})
}
