// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/test/netnstest"
)

// stop stops the proxy for 0.1 to 20 s while endpoints change; in two of three
// instants another program edits or wipes the rules meanwhile. What that destroys is not judged
// until the proxy has had the time to restore it: all targets answer again then.
func stop(ctx context.Context, r *trial, number int) (err error) {
	const shortest, longest = 100 * time.Millisecond, 20 * time.Second
	lasts := time.Duration(float64(shortest) * math.Pow(float64(min(longest, r.hold))/float64(shortest), rand.Float64()))
	before := rand.N(lasts)
	if err := r.signal(unix.SIGSTOP); err != nil {
		return err
	}
	time.Sleep(before)
	want := r.c.mark()
	over := func() {}
	switch rival := r.rival(); number % 3 {
	case 0:
		r.row.count("stopped")
	case 1:
		r.row.count("stopped, and one Service's rules deleted by another program")
		over = r.t.breaks(func(t target, _ netnstest.Exchange) bool {
			return t.service == rival.victim && t.addr.Port() == webPort
		})
		err = rival.edit()
	case 2:
		r.row.count("stopped, and all rules deleted by another program")
		over = r.t.breaks(func(target, netnstest.Exchange) bool { return true })
		err = rival.wipe()
	}
	if err != nil {
		return err
	}
	time.Sleep(lasts - before)
	if err := r.signal(unix.SIGCONT); err != nil {
		return err
	}
	from := time.Now()
	if err := r.recovered(ctx, from, want, false); err != nil {
		return fmt.Errorf("stopped for %v: %w", lasts, err)
	}
	if err := r.t.awaitAll(ctx, time.Until(from.Add(r.recovery))); err != nil {
		return fmt.Errorf("stopped for %v: %w", lasts, err)
	}
	r.notice(0, time.Since(from))
	over()
	return nil
}
