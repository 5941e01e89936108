// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/sluice-proxy/sluice/internal/explain"
	"github.com/sluice-proxy/sluice/observe/state"
)

// Reach specifies who may send a query.
type Reach uint8

const (
	// Local queries are answered only at the socket and in the web UI of the node.
	Local Reach = iota
	// Authorized queries are also answered to other hosts if the proxy checks each caller (security.inspection).
	Authorized
	// Network queries are answered to every host that reaches inspection.bindAddress. Unless the proxy checks each caller,
	// the answers contain only what the function public leaves.
	Network
)

// String returns the name of the reach in the documentation.
func (r Reach) String() string {
	return [...]string{"this node", "authorized callers", "network"}[r]
}

// Exposure describes what a path shows, and to whom. Kind is a value of {kind} in the path; empty means all others.
type Exposure struct {
	Path, Kind string
	Shows      string
	Reach      Reach
}

// Exposures lists each path of the API. The proxy serves no other paths.
var Exposures = []Exposure{
	{PathStatus, "", "mode, version, state of the proxy and of rejected Services", Network},
	{PathServices, "", "names, addresses and states of Services", Network},
	{PathService, "", "one Service: addresses, state, rules, last changes", Network},
	{PathAllDetails, "", "the same for all Services", Network},
	{PathExplain, "", "rules and endpoint of one connection, which the question names", Network},
	{PathGone, "", "whether an endpoint that the question names gets new connections", Network},
	{PathTop, "services", "traffic of Services", Network},
	{PathTop, "", "traffic of endpoints; addresses of clients", Authorized},
	{PathFlows, "", "records of connections, with addresses of clients", Authorized},
	{PathEndpoints, "", "endpoints of one Service, and why they are used or not", Local},
	{PathAllEndpoints, "", "the same for all Services", Local},
	{PathConnections, "", "open connections, with addresses of clients", Local},
	{PathHistory, "", "traffic of the last minutes", Local},
	{PathNames, "", "names of Services", Local},
	{PathEvents, "", "events with names of Services and errors", Local},
	{PathDump, "", "an archive with all of this, the configuration and the rules", Local},
}

// reach returns who may send queries to a path, and whether the path is known.
func reach(path, kind string) (Reach, bool) {
	found, known := Local, false
	for _, e := range Exposures {
		if e.Path == path && (e.Kind == "" || e.Kind == kind) {
			if e.Kind != "" {
				return e.Reach, true
			}
			found, known = e.Reach, true
		}
	}
	return found, known
}

// exposed passes on the queries of other hosts that Exposures allows. With authorized, the callers are already checked.
func exposed(pattern, version string, authorized bool, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(headerVersion, version)
		w.Header().Set(headerAPI, Version)
		if of, _ := reach(pattern, r.PathValue("kind")); of == Network || of == Authorized && authorized {
			next.ServeHTTP(w, r)
			return
		}
		subject := "lists of endpoints and clients"
		if pattern == PathFlows {
			subject = "records of connections"
		}
		fail(w, http.StatusForbidden, subject+" contain addresses of clients and require security.inspection")
	})
}

// public returns what everyone on the network may see of an answer: no addresses of clients other than one that the
// query contains, no command lines, and no errors of the kernel or of the API server. Several answers may share slices
// and pointers, so it copies what it changes.
func public(answer any) any {
	switch a := answer.(type) {
	case *Status:
		a.public()
	case *ServiceDetail:
		a.public()
	case *explain.Answer:
		a.Pending = slices.Clone(a.Pending)
		for i := range a.Pending {
			hide(&a.Pending[i].Reason)
		}
		a.Reasons, a.NotEvaluated = withoutErrors(a.Reasons, explain.UnreadAffinity), withoutErrors(a.NotEvaluated, explain.UnknownChains)
		if a.Connections != nil {
			hide(&a.Connections.Error)
		}
	case *TopList:
		for i := range a.Items {
			a.Items[i].Client = ""
		}
	case *Service, *Gone: // contain no such text
	default:
		panic(fmt.Sprintf("inspect: %T has no public form", answer))
	}
	return answer
}

// hide replaces a text, but not an empty one, so that a client still learns that there is an error.
func hide(text *string) {
	if *text != "" {
		*text = state.Hidden
	}
}

// withoutErrors hides the rest of the texts that begin with a prefix.
func withoutErrors(texts []string, prefix string) []string {
	texts = slices.Clone(texts)
	for i := range texts {
		if strings.HasPrefix(texts[i], prefix) {
			texts[i] = prefix + state.Hidden
		}
	}
	return texts
}

func (s *Status) public() {
	s.Feed.Resources, s.SelfTest, s.Domains, s.Findings = slices.Clone(s.Feed.Resources), slices.Clone(s.SelfTest), slices.Clone(s.Domains), slices.Clone(s.Findings)
	for i := range s.Feed.Resources {
		hide(&s.Feed.Resources[i].Error)
	}
	if s.Offload != nil {
		offload := *s.Offload
		hide(&offload.Problem)
		s.Offload = &offload
	}
	for i := range s.SelfTest {
		hide(&s.SelfTest[i].Problem)
	}
	for i := range s.Domains {
		d := &s.Domains[i]
		hide(&d.LastError)
		d.Quarantined = slices.Clone(d.Quarantined)
		for n := range d.Quarantined {
			hide(&d.Quarantined[n].Reason)
		}
	}
	if s.Activity.LastRepair != nil {
		repair := *s.Activity.LastRepair
		hide(&repair.By)
		repair.Examples = []string{}
		s.Activity.LastRepair = &repair
	}
	for i := range s.Findings {
		s.Findings[i].Finding = s.Findings[i].Public()
	}
}

func (d *ServiceDetail) public() {
	hide(&d.Actor.LastFailure)
	d.Domains = slices.Clone(d.Domains)
	for i := range d.Domains {
		hide(&d.Domains[i].Error)
		if q := d.Domains[i].Quarantine; q != nil {
			held := *q
			hide(&held.Reason)
			d.Domains[i].Quarantine = &held
		}
	}
}
