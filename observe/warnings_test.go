// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/sluice-proxy/sluice/service"
)

func bad(object string, field int) service.Warning {
	return service.Warning{Object: object, Field: fmt.Sprint("f", field), Problem: "bad"}
}

// TestWarnings_PerObjectAndMinute: the first warning about an object is logged at once, and the next ones in one line
// when the minute is over.
func TestWarnings_PerObjectAndMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, lines := observer.New(zap.WarnLevel)
		w := NewWarnings(zap.New(core))
		ctx, cancel := context.WithCancel(t.Context())
		go w.Run(ctx)
		for i := range 20 {
			w.Add(bad("Service ns/a", i))
		}
		w.Add(bad("Service ns/b", 0))
		synctest.Wait()
		if got := lines.Len(); got != 2 {
			t.Errorf("%d lines at once, want one of each object: %v", got, lines.All())
		}
		time.Sleep(warningPause + warningPause/10)
		all := lines.TakeAll()
		if len(all) != 3 {
			t.Fatalf("%d lines after a minute, want 3: %v", len(all), all)
		}
		fields := all[2].ContextMap()
		others, _ := fields["others"].([]any)
		if fields["object"] != "Service ns/a" || fields["field"] != "f1" || len(others) != othersMax || others[0] != "f2: bad" ||
			fields["more"] != int64(20-2-othersMax) {
			t.Errorf("the line has %v", fields)
		}
		time.Sleep(3 * warningPause)
		synctest.Wait()
		if lines.Len() != 0 || len(w.warned) != 0 {
			t.Errorf("%d lines without news; %d objects are remembered", lines.Len(), len(w.warned))
		}
		w.Add(bad("Service ns/a", 0))
		synctest.Wait()
		if lines.Len() != 1 {
			t.Errorf("%d lines, want the news at once", lines.Len())
		}
		cancel()
	})
}

// TestWarnings_TooManyObjectsDropped: warnings about objects beyond the limit are dropped and counted. The log itself
// never blocks (internal/daemon, TestPipe_WithoutReader).
func TestWarnings_TooManyObjectsDropped(t *testing.T) {
	w := NewWarnings(zap.NewNop())
	for i := range warnedMax + 7 {
		w.Add(bad(fmt.Sprint("Service ns/", i), 0))
	}
	if got := w.Dropped(); got != 7 {
		t.Errorf("%d warnings dropped and counted, want 7", got)
	}
}
