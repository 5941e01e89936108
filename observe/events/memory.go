package events

import (
	"sync"
	"time"

	"github.com/sluice-proxy/sluice/service"
)

// memoryMax bounds the events that a process remembers.
const memoryMax = 200

// Remembered is an event that this node reported, or would report if there were an API server. Shared events are
// remembered on every node.
type Remembered struct {
	Time time.Time
	// Key is service.Node for the Node.
	Key                service.Key
	Type, Reason, Note string
}

// Memory has the last events of a process, the oldest first. The recorders that follow one another share it.
//
// Concurrency: all methods are safe for concurrent use.
type Memory struct {
	mu      sync.Mutex
	events  []Remembered
	omitted uint64
}

func (m *Memory) add(e entry) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.events) == memoryMax {
		copy(m.events, m.events[1:])
		m.events, m.omitted = m.events[:memoryMax-1], m.omitted+1
	}
	m.events = append(m.events, Remembered{Time: time.Now(), Key: e.key, Type: e.kind, Reason: e.reason, Note: e.note})
}

// Events returns a copy of the events, and the number of older ones that are forgotten.
func (m *Memory) Events() (all []Remembered, omitted uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append(all, m.events...), m.omitted
}
