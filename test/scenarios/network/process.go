package network

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"time"
)

// errNotStarted is what happens to those who end a proxy that never ran.
var errNotStarted = errors.New("the proxy was not started")

// Stop ends the proxy with SIGTERM, after which its status has to be 0.
func (w *World) Stop() error {
	if w.proxy == nil {
		return errNotStarted
	}
	return w.proxy.Stop()
}

// Kill ends the proxy with SIGKILL.
func (w *World) Kill() error {
	if w.proxy == nil {
		return errNotStarted
	}
	return w.proxy.Kill()
}

// Alive is an error that says how the proxy ended, if it has.
func (w *World) Alive() error {
	if w.proxy == nil || w.proxy.Running() {
		return nil
	}
	return fmt.Errorf("the proxy has ended by itself (%s); its log ends with\n%s", w.proxy.End(), w.proxy.Tail(5))
}

// AwaitExit waits until the proxy has ended by itself, with a status.
func (w *World) AwaitExit(ctx context.Context, status int, limit time.Duration) error {
	if w.proxy == nil {
		return errNotStarted
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	select {
	case <-w.proxy.Ended():
	case <-ctx.Done():
		return fmt.Errorf("the proxy runs after %v, want it to end with status %d", limit, status)
	}
	got := 0
	var exit *exec.ExitError
	if errors.As(w.proxy.Err(), &exit) {
		got = exit.ExitCode()
	}
	if got != status {
		return fmt.Errorf("the proxy ended with status %d, want %d; its log ends with\n%s", got, status, w.proxy.Tail(5))
	}
	return nil
}
