// SPDX-License-Identifier: Apache-2.0

package events

import (
	"sync"

	"github.com/sluice-proxy/sluice/observe/state"
)

// memoryMax bounds the events that a process remembers.
const memoryMax = 200

// Memory has the last events that this process reported, or would report if there were an API server, the oldest first.
// On every node, it has the shared events too, which only one node reports. Successive recorders share it.
//
// Concurrency: all methods are safe for concurrent use.
type Memory struct {
	mu      sync.Mutex
	events  []state.Event
	omitted uint64
}

func (m *Memory) add(e *state.Event) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.events) == memoryMax {
		copy(m.events, m.events[1:])
		m.events, m.omitted = m.events[:memoryMax-1], m.omitted+1
	}
	m.events = append(m.events, *e)
}

// Events returns a copy of the events, and the number of older ones that are forgotten.
func (m *Memory) Events() (all []state.Event, omitted uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append(all, m.events...), m.omitted
}
