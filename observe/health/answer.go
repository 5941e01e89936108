package health

import (
	"encoding/json"
	"net/http"
	"time"
)

// answer is the body of /healthz and /livez, as kube-proxy v1.36 gives it; with
// verbose, findings besides.
type answer struct {
	// LastUpdated is the current time with an answer of 200, which old readers
	// take for a sign of life, and else the latest success of any family.
	LastUpdated time.Time `json:"lastUpdated"`
	CurrentTime time.Time `json:"currentTime"`
	// NodeEligible is absent on /livez.
	NodeEligible *bool `json:"nodeEligible,omitempty"`
	// Healthy speaks of the families only: a node that is not eligible answers
	// 503 with true here. On /healthz it is false while this process waits.
	Healthy  bool                      `json:"healthy"`
	Status   map[string]instanceAnswer `json:"status,omitempty"`
	Findings []findingAnswer           `json:"findings,omitempty"`
}

type instanceAnswer struct {
	LastUpdated time.Time `json:"lastUpdated"`
	Healthy     bool      `json:"healthy"`
}

type findingAnswer struct {
	Kind      Kind             `json:"kind"`
	About     string           `json:"about,omitempty"`
	Since     time.Time        `json:"since,omitzero"`
	Unhealthy bool             `json:"unhealthy"`
	Problem   string           `json:"problem"`
	Advice    string           `json:"advice"`
	Services  []affectedAnswer `json:"services,omitempty"`
	More      int              `json:"more,omitempty"`
}

type affectedAnswer struct {
	Service string    `json:"service"`
	Since   time.Time `json:"since,omitzero"`
	Reason  string    `json:"reason,omitempty"`
}

// code is the status of an answer. Only /healthz considers the node, and whether this
// process serves it: restarting one that waits would help nobody.
func code(s *State, considerNode bool) int {
	if s.Healthy() && (s.NodeEligible && !s.Standby || !considerNode) {
		return http.StatusOK
	}
	return http.StatusServiceUnavailable
}

// newAnswer makes the body without findings.
func newAnswer(s *State, considerNode bool) answer {
	a := answer{
		LastUpdated: s.Updated(), CurrentTime: s.At, Healthy: s.Healthy() && !(considerNode && s.Standby),
		Status: make(map[string]instanceAnswer, len(s.Instances)),
	}
	if code(s, considerNode) == http.StatusOK {
		a.LastUpdated = s.At
	}
	if considerNode {
		a.NodeEligible = &s.NodeEligible
	}
	for _, i := range s.Instances {
		a.Status[i.Family.String()] = instanceAnswer{LastUpdated: i.Updated, Healthy: i.Healthy}
	}
	return a
}

// add adds findings.
func (a *answer) add(findings []Finding) {
	for i := range findings {
		f := &findings[i]
		said := findingAnswer{
			Kind: f.Kind, About: f.About, Since: f.Since, Unhealthy: f.Unhealthy,
			Problem: f.Problem, Advice: f.Kind.Advice(), More: f.More,
		}
		for _, s := range f.Services {
			said.Services = append(said.Services, affectedAnswer(s))
		}
		a.Findings = append(a.Findings, said)
	}
}

// encode gives the body. Times of a running process and strings always encode.
func (a *answer) encode() []byte {
	body, err := json.Marshal(a)
	if err != nil {
		return []byte(err.Error())
	}
	return body
}
