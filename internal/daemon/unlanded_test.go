// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/sluice-proxy/sluice/service"
)

// TestUnlanded_RecordedForNextProcess: Services whose objects do not land are recorded for the next process,
// immediately and until they land. The previous process's record remains until the first sync.
func TestUnlanded_RecordedForNextProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := unlanded{filepath.Join(t.TempDir(), "state", unlandedFile), zap.NewNop()}
		is := func(want string) {
			t.Helper()
			time.Sleep(2 * unlandedAgain)
			if got := fmt.Sprint(u.read()); got != want {
				t.Errorf("recorded %s, want %s", got, want)
			}
		}
		is("[]")
		if err := u.write(map[service.Key]bool{{Namespace: "ns", Name: "former"}: true}); err != nil {
			t.Fatal(err)
		}
		var now atomic.Pointer[[]service.Key]
		now.Store(&[]service.Key{})
		synced := make(chan struct{})
		ctx, stop := context.WithCancel(t.Context())
		go u.run(ctx, synced, func() []service.Key { return *now.Load() })
		now.Store(&[]service.Key{{Namespace: "ns", Name: "hangs"}})
		is("[ns/former ns/hangs]")
		close(synced)
		is("[ns/hangs]")
		now.Store(&[]service.Key{})
		is("[]")
		stop()
		if err := os.WriteFile(u.file, []byte(`["half`), 0o600); err != nil {
			t.Fatal(err)
		}
		is("[]")
	})
}
