// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/sluice-proxy/sluice/bench/rig"
	"github.com/sluice-proxy/sluice/test/harness"
)

// restartAPI ends the API server, in turns by SIGKILL and SIGTERM, and starts it again.
func (s *soak) restartAPI(_ context.Context, n int) error {
	began := time.Now()
	end := (*harness.APIServer).Kill
	if n%2 == 0 {
		end = (*harness.APIServer).Stop
	}
	if err := s.api.restart(end); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.restarts++
	rig.Progress("  API server: restart %d took %s", n, rig.Round(time.Since(began)))
	return nil
}

// configure writes the file of the n-th configuration. The number of concurrent requests is all that
// differs: it takes a hand-over, and has no effect that a client could see.
func (s *soak) configure(n int) error {
	text := fmt.Sprintf(`apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: %s
clusterCIDR: %s
enableProfiling: true
clientConnection: {kubeconfig: %q, burst: %d}
conntrack: {maxPerCore: 0}
---
apiVersion: sluice.dev/v1alpha1
kind: SluiceConfiguration
state: {dir: %q}
`, s.mode, podRange.String()+","+podRange6.String(), s.api.ProxyKubeconfig(), burst(n), filepath.Join(s.dir, "state"))
	// As a ConfigMap does: the new file takes the place of the old one.
	if err := os.WriteFile(s.config+".new", []byte(text), 0o644); err != nil {
		return err
	}
	return os.Rename(s.config+".new", s.config)
}

func burst(n int) int { return 100 + n }

// reconfigure changes the configuration and waits until the process says that it is applied.
func (s *soak) reconfigure(ctx context.Context, n int) error {
	began := time.Now()
	if err := s.configure(n); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, s.limit)
	defer cancel()
	for {
		got, err := s.appliedBurst(ctx)
		if err == nil && got == burst(n) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.handOvers++
			return nil
		}
		if !rig.Sleep(ctx, 200*time.Millisecond) {
			return fmt.Errorf("the configuration is not applied %s after it was written (burst %d, %v)", rig.Round(time.Since(began)), got, err)
		}
	}
}

// appliedBurst returns the number of concurrent requests that the effective configuration allows.
func (s *soak) appliedBurst(ctx context.Context) (int, error) {
	text, err := s.get(ctx, "/configz")
	if err != nil {
		return 0, err
	}
	var configz map[string]struct{ ClientConnection struct{ Burst int } }
	err = json.Unmarshal(text, &configz)
	for _, document := range configz {
		if b := document.ClientConnection.Burst; b != 0 {
			return b, nil
		}
	}
	return 0, err
}
