// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/sluice-proxy/sluice/test/process"
)

// lockFile is the lock of the proxies' iptables programs. It is not the host's.
func (o *options) lockFile() string { return filepath.Join(o.dir, "xtables.lock") }

// lock lets another process hold the lock of the iptables programs. In variant legacy the changes
// wait for it, and health says so; elsewhere nothing takes the lock.
func lock(ctx context.Context, r *trial, _ int) error {
	holder, err := process.StartDaemon(r.p.Namespace, filepath.Join(r.dir, "flock.log"),
		exec.Command("flock", "--no-fork", "--exclusive", r.lockFile(), "sh", "-c", "echo held; exec sleep 600"))
	if err != nil {
		return err
	}
	defer holder.Kill() // it ends with this process
	waiting, enough := context.WithTimeout(ctx, r.recovery)
	defer enough()
	if err := holder.AwaitLine(waiting, "held"); err != nil {
		return err
	}
	began, want := time.Now(), r.c.mark()
	if r.variant != "legacy" {
		if err := r.recovered(ctx, began, want, false); err != nil {
			return err
		}
		r.row.count("changes applied under the lock")
		time.Sleep(time.Until(began.Add(r.hold)))
		return nil
	}
	const sure = 20 * time.Second
	said := false
	for time.Since(began) < r.hold {
		text, err := r.health(ctx)
		if err != nil {
			return err
		}
		said = said || strings.Contains(text, r.lockFile())
		time.Sleep(200 * time.Millisecond)
	}
	// Health names a lock that has been held for longer than one of the proxy's tries waits.
	switch {
	case said:
		r.row.count("health names the lock")
	case r.hold < sure:
		r.row.count("too short for health to name the lock")
	default:
		return fmt.Errorf("the lock was held for %v, and health does not say so", r.hold)
	}
	if err := holder.Kill(); err != nil {
		return err
	}
	return r.recovered(ctx, time.Now(), want, false)
}

// health returns what the proxy says to people about its state.
func (r *trial) health(ctx context.Context) (string, error) {
	client := http.Client{Transport: &http.Transport{DialContext: r.p.Namespace.DialContext, DisableKeepAlives: true}, Timeout: r.patience}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1:10256/healthz?verbose", nil)
	if err != nil {
		return "", err
	}
	answer, err := client.Do(request)
	if err != nil {
		return "", fmt.Errorf("ask for health: %w", err)
	}
	defer answer.Body.Close() // nothing to lose
	text, err := io.ReadAll(answer.Body)
	return string(text), err
}
