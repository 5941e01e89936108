// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/supervisor"
)

// TestTasks_ContinueAfterReportedPanic: a panic in a task is reported, and later tasks still run.
func TestTasks_ContinueAfterReportedPanic(t *testing.T) {
	reports := make(chan Failure, 1)
	c := newTasks(func(f Failure) { reports <- f })
	ended := make(chan error, 1)
	if !c.run("tcp/127.0.0.1:1", func() error { panic(io.ErrUnexpectedEOF) }, func(err error) { ended <- err }) {
		t.Fatal("the work was not started")
	}
	f := <-reports
	panicked, ok := errors.AsType[*supervisor.PanicError](f.Err)
	if !ok || f.Listener != "tcp/127.0.0.1:1" || !errors.Is(f.Err, io.ErrUnexpectedEOF) ||
		!strings.Contains(string(panicked.Stack), "relay_test.go") {
		t.Errorf("reported %+v", f)
	}
	if err := <-ended; !errors.Is(err, f.Err) {
		t.Errorf("ended with %v, reported %v", err, f.Err)
	}
	if !c.run("", func() error { return nil }, func(err error) { ended <- err }) || <-ended != nil {
		t.Error("a panic has ended the tasks")
	}
	c.close()
}

// TestTasks_CloseWaits: close waits for running tasks, and no task starts after it.
func TestTasks_CloseWaits(t *testing.T) {
	c := newTasks(func(f Failure) { t.Errorf("reported %+v", f) })
	done := false
	c.run("", func() error {
		<-c.ctx.Done()
		time.Sleep(20 * time.Millisecond)
		done = true
		return nil
	}, func(error) {})
	c.close()
	if !done {
		t.Error("close did not wait")
	}
	if c.run("", func() error { return nil }, func(error) {}) {
		t.Error("a closed tasks takes work")
	}
}
