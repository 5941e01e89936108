package metrics

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/sluice-proxy/sluice/service"
)

// serviceJSON is one Service in the JSON form of /metrics/services.
type serviceJSON struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Revision is "incarnation.sequence" of the newest one in the kernel.
	Revision           string                  `json:"revision"`
	Commits            uint32                  `json:"commits"`
	LastCommit         *time.Time              `json:"lastCommit,omitempty"`
	Programming        *latencyJSON            `json:"programming,omitempty"`
	NetworkProgramming *latencyJSON            `json:"networkProgramming,omitempty"`
	Actor              actorJSON               `json:"actor"`
	Quarantined        []heldJSON              `json:"quarantined,omitempty"`
	Endpoints          map[string]endpointJSON `json:"endpoints,omitempty"`
	FlowsDeleted       uint32                  `json:"conntrackEntriesDeleted"`
	// Traffic is by family, in modes in which the kernel counts it.
	Traffic map[string]trafficJSON `json:"traffic,omitempty"`
}

// latencyJSON is in seconds.
type latencyJSON struct {
	Last    float32 `json:"lastSeconds"`
	Longest float32 `json:"longestSeconds"`
}

// actorJSON is the state of one actor.
type actorJSON struct {
	State    string `json:"state"`
	Restarts uint32 `json:"restarts"`
	Failures uint32 `json:"failures"`
	// LastFailure is nil for one that has never failed.
	LastFailure *failureJSON `json:"lastFailure,omitempty"`
	ParkedUntil *time.Time   `json:"parkedUntil,omitempty"`
}

type failureJSON struct {
	Kind  string    `json:"kind"`
	Error string    `json:"error"`
	At    time.Time `json:"at"`
}

// heldJSON is one domain's quarantine.
type heldJSON struct {
	Domain string    `json:"domain"`
	Class  string    `json:"class"`
	Reason string    `json:"reason"`
	Since  time.Time `json:"since"`
}

type endpointJSON struct {
	Local       uint32 `json:"local"`
	Remote      uint32 `json:"remote"`
	Established uint32 `json:"established"`
	Draining    int    `json:"draining,omitempty"`
}

func (s *services) toJSON(l *line) serviceJSON {
	made := serviceJSON{
		Namespace: l.key.Namespace, Name: l.key.Name,
		Revision: l.revision.String(), Commits: l.commits,
		Programming: l.received.toJSON(), NetworkProgramming: l.triggered.toJSON(),
		Actor: l.actor(), FlowsDeleted: l.flowsDeleted, Traffic: s.trafficJSON(l.key),
	}
	if l.committed != 0 {
		at := time.Unix(0, l.committed).UTC()
		made.LastCommit = &at
	}
	for _, h := range s.held[l.key] {
		made.Quarantined = append(made.Quarantined, heldJSON{h.domain, reasonClass(h.reason), h.reason, h.since.UTC()})
	}
	for _, family := range service.Families {
		if e := l.endpoints[family]; l.served[family] {
			if made.Endpoints == nil {
				made.Endpoints = map[string]endpointJSON{}
			}
			made.Endpoints[family.String()] = endpointJSON{e.local, e.remote, e.established, l.draining[family]}
		}
	}
	return made
}

func (l latency) toJSON() *latencyJSON {
	if !l.measured() {
		return nil
	}
	return &latencyJSON{l.last, l.longest}
}

func (r *record) actor() actorJSON {
	made := actorJSON{State: r.state(), Restarts: r.restarts}
	t := r.trouble
	if t == nil {
		return made
	}
	made.Failures = t.failures
	if t.failures > 0 {
		made.LastFailure = &failureJSON{t.kind, t.words, t.at.UTC()}
	}
	if !t.parkedUntil.IsZero() {
		until := t.parkedUntil.UTC()
		made.ParkedUntil = &until
	}
	return made
}

// writeJSON writes the answer Service by Service, so that a long one is never in
// memory as a whole.
func (s *services) writeJSON(to io.Writer) {
	w := bufio.NewWriterSize(to, 64<<10)
	defer func() { _ = w.Flush() }()
	_, _ = fmt.Fprintf(w, "{\"omitted\":%d,\"services\":[", s.omitted) // the writer remembers its error
	for i := range s.lines {
		if i > 0 {
			_ = w.WriteByte(',')
		}
		text, err := json.Marshal(s.toJSON(&s.lines[i]))
		if err != nil {
			panic(fmt.Sprintf("metrics: plain values that JSON cannot say: %v", err))
		}
		_, _ = w.Write(text)
	}
	_, _ = w.WriteString("]}\n")
}
