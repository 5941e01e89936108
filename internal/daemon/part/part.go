// SPDX-License-Identifier: Apache-2.0

// Package part defines the type of a part of the process: a component outside the core, such as the self-test or the
// export of traces. The server runs a list of parts. A new part needs a directory and a line in that list.
package part

import (
	"context"

	"go.uber.org/zap"

	"github.com/sluice-proxy/sluice/dataplane/conntrack"
	"github.com/sluice-proxy/sluice/internal/daemon/setup"
	"github.com/sluice-proxy/sluice/internal/inspect"
	"github.com/sluice-proxy/sluice/observe"
	"github.com/sluice-proxy/sluice/observe/events"
	"github.com/sluice-proxy/sluice/observe/metrics"
	"github.com/sluice-proxy/sluice/observe/state"
	"github.com/sluice-proxy/sluice/proxy"
)

// Part is a component of the process outside the core. Every field except Name may be empty.
type Part struct {
	Name string
	// Run runs from When on, until the context ends. An error ends the process.
	Run  func(context.Context) error
	When When
	// Listener receives every event of the proxy, and Observer what is applied.
	Listener observe.Listener
	Observer proxy.ApplyObserver
	// Findings returns what is wrong. It must not block.
	Findings func() []state.Finding
	Metrics  metrics.Sampled
	// Status adds the state of the part to the status.
	Status func(*inspect.Status)
	// Observe answers queries about connections; only one part sets it.
	Observe func(context.Context, inspect.FlowQuery, func(*inspect.FlowEvent) error) error
}

// When is the moment from which a part runs.
type When int

// The moments.
const (
	Now    When = iota // immediately, also on standby
	Owned              // once the rules belong to this process
	Synced             // once the first rules are applied
)

// Host gives parts access to the process.
type Host struct {
	*View
	Options *setup.Options
	Backend *setup.Backend
	Node    proxy.NodeSettings
	Log     *zap.Logger
	// Repeated keeps failures that repeat from filling the log.
	Repeated *observe.Incidents
	Recorder *events.Recorder
	// Connections delivers the kernel's connection events.
	Connections *conntrack.Feed
	// MayWrite is closed once the rules belong to this process.
	MayWrite <-chan struct{}
}

// Came waits for a moment. It returns false if the context ends before.
func Came(ctx context.Context, moment <-chan struct{}) bool {
	select {
	case <-moment:
		return true
	case <-ctx.Done():
		return false
	}
}

// Always makes a Run of a function that cannot fail.
func Always(run func(context.Context)) func(context.Context) error {
	return func(ctx context.Context) error {
		run(ctx)
		return nil
	}
}
