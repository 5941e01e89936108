// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"time"

	"github.com/sluice-proxy/sluice/actors"
	"github.com/sluice-proxy/sluice/internal/daemon/config"
	"github.com/sluice-proxy/sluice/internal/daemon/setup"
	"github.com/sluice-proxy/sluice/observe"
	"github.com/sluice-proxy/sluice/service"
)

// Options are those of a process that serves.
type Options struct {
	setup.Options
	// FlagValues returns all flags with their values, for /flagz.
	FlagValues func() map[string]string
	// Ready, if set, is called once the backend is chosen.
	Ready func(config.Mode)
	// FirstSync, if set, is called once the first rules are applied.
	FirstSync func(config.Mode)
	// Lab, if set, is built around the proxy.
	Lab *Lab
	// Listeners receive every event of the proxy, and Intercept each message of an actor, for the demo; nil for none.
	Listeners []observe.Listener
	Intercept func(ctx context.Context, key service.Key, message actors.Message)
	// WithoutCluster serves health and metrics although there is no cluster that could ask.
	WithoutCluster bool
	// MessageDeadline is the longest time that an actor may spend on one message; 0 for the default.
	MessageDeadline time.Duration
	// SelfTestInterval is the time between two self-tests; 0 for the default.
	SelfTestInterval time.Duration
	// LookInterval is the time between two looks at settings and chains of other programs; 0 for the default.
	LookInterval time.Duration
	// SuspectPause is how long an endpoint that fails gets no connection at first; 0 for the default.
	SuspectPause time.Duration
}
