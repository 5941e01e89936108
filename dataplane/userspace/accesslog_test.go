package userspace_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-proxy/sluice/dataplane/userspace"
)

// logged returns what waits in an access log.
func logged(log *userspace.AccessLog) (all []userspace.Ended) {
	ended, end := context.WithCancel(context.Background())
	end()
	log.Run(ended, func(e userspace.Ended) { all = append(all, e) }, func(uint64) {})
	return all
}

// TestAccessLogIsBounded: in what waits, and in the lines of a second. The rest is counted.
func TestAccessLogIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := userspace.NewAccessLog()
		const many = 10_000
		userspace.Put(log, many) // nobody reads: it does not block
		ctx, stop := context.WithCancel(t.Context())
		lines, omitted := 0, uint64(0)
		done := make(chan struct{})
		go func() {
			defer close(done)
			log.Run(ctx, func(userspace.Ended) { lines++ }, func(n uint64) { omitted += n })
		}()
		synctest.Wait()
		if lines != userspace.LinesMax {
			t.Errorf("%d lines at once, want %d", lines, userspace.LinesMax)
		}
		time.Sleep(1500 * time.Millisecond)
		userspace.Put(log, 10)
		time.Sleep(time.Minute)
		synctest.Wait()
		if want := uint64(many - userspace.LinesMax); lines != userspace.LinesMax+10 || omitted != want {
			t.Errorf("%d lines, and %d omitted; want %d and %d", lines, omitted, userspace.LinesMax+10, want)
		}
		stop()
		<-done
	})
}
