package events

import (
	"context"
	"sync"
	"time"

	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/client-go/tools/events"
)

// lastWordMax bounds the wait for the API server to take the last event of a process.
const lastWordMax = 2 * time.Second

// sink sends events to the API server, and says when those with a certain reason
// have been taken or refused.
type sink struct {
	events.EventSink
	sent sync.Map // reason to chan struct{}, which is closed
}

// Create sends an event.
func (s *sink) Create(ctx context.Context, event *eventsv1.Event) (*eventsv1.Event, error) {
	created, err := s.EventSink.Create(ctx, event)
	if sent, waited := s.sent.LoadAndDelete(event.Reason); waited {
		close(sent.(chan struct{}))
	}
	return created, err
}

// lastWord records what is about to end the process, and waits a moment for it to
// arrive: what is recorded is sent later, and would be lost.
func (r *Recorder) lastWord(reason, action string, err error) {
	if r.recorder == nil {
		return
	}
	sent := make(chan struct{})
	r.sink.sent.Store(reason, sent)
	r.warn(r.node, reason, action, "%v", err)
	select {
	case <-sent:
	case <-time.After(lastWordMax):
	}
}
