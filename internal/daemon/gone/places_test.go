// SPDX-License-Identifier: Apache-2.0

//go:build linux

package gone

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-proxy/sluice/internal/inspect"
)

// TestHandler_WaitingAddressBlocksNoOther: waiting queries from one address block neither those from other addresses,
// nor queries that can be answered at once.
func TestHandler_WaitingAddressBlocksNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := Handler(func(ctx context.Context, q inspect.GoneQuery) *inspect.Gone {
			a := &inspect.Gone{Gone: q.At.Port() == 1}
			if !a.Gone {
				select {
				case <-time.After(q.Wait):
				case <-ctx.Done():
				}
			}
			return a
		}, 500, http.NotFoundHandler())
		ask := func(from, query string) int {
			w, r := httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), "GET", "/endpoints/10.0.0.1:"+query, nil)
			r.RemoteAddr = from
			h.ServeHTTP(w, r)
			return w.Code
		}
		codes, mu := map[int]int{}, sync.Mutex{}
		for i := range 600 {
			go func() {
				code := ask(fmt.Sprintf("[2001:db8::%x]:80", i), "80?wait=30s") // one /64
				mu.Lock()
				defer mu.Unlock()
				codes[code]++
			}()
		}
		synctest.Wait()
		began := time.Now()
		for from, query := range map[string]string{
			"10.244.0.1:80":    "80?wait=5s", // of another address
			"[2001:db8::1]:80": "1?wait=30s", // gone
			"[2001:db8::2]:80": "80",         // does not wait
		} {
			if code := ask(from, query); code != http.StatusOK {
				t.Errorf("%s %s: %d", from, query, code)
			}
		}
		if code := ask("[2001:db8::3]:80", "80?wait=1s"); code != http.StatusTooManyRequests {
			t.Errorf("a further question of the address that has all its places: %d", code)
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("the answers took %v", took)
		}
		time.Sleep(time.Minute) // of the bubble
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		if codes[200] != eachMax || codes[429] != 600-eachMax {
			t.Errorf("%v", codes)
		}
	})
}
