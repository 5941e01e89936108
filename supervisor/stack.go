package supervisor

import (
	"bytes"
	"context"
	"fmt"
	"runtime/pprof"
	"strconv"
)

// label marks a child's goroutine in profiles; it carries the incarnation,
// which is unique.
const label = "sluice-incarnation"

// mark labels the calling goroutine with the child's name and incarnation until it
// ends, so that its stack can be found, and profiles say whose time was spent.
func mark(ctx context.Context, child string, incarnation uint64) {
	labels := pprof.Labels(label, strconv.FormatUint(incarnation, 10), "sluice-child", child)
	pprof.SetGoroutineLabels(pprof.WithLabels(ctx, labels))
}

// stackOf gives the stack of the goroutine with the given incarnation. It reads
// the goroutine profile, which does not stop the world for long (runtime/pprof,
// Go 1.19 and newer).
func stackOf(incarnation uint64) string {
	var profile bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&profile, 1); err != nil {
		return fmt.Sprintf("stack not available: %v", err)
	}
	want := []byte(strconv.Quote(label) + ":" + strconv.Quote(strconv.FormatUint(incarnation, 10)))
	for _, record := range bytes.Split(profile.Bytes(), []byte("\n\n")) {
		if bytes.Contains(record, want) {
			return string(bytes.TrimSpace(record))
		}
	}
	return "stack not available: the goroutine has returned"
}
