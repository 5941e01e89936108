package inspect

import "net/http"

// Reach says who may ask a question.
type Reach uint8

const (
	// Local questions are answered at the socket and at the page of the node only.
	Local Reach = iota
	// Authorized questions are answered to other hosts as well if each caller is checked (security.inspection).
	Authorized
	// Network questions are answered to every host that reaches inspection.bindAddress.
	Network
)

// String returns the reach as the documentation has it.
func (r Reach) String() string {
	return [...]string{"this node", "authorized callers", "network"}[r]
}

// Exposure is what a path shows, and to whom. Kind is a value of {kind} in the path; empty means all others.
type Exposure struct {
	Path, Kind string
	Shows      string
	Reach      Reach
}

// Exposures has each path of the API. A path that is not in it is answered to nobody. What has addresses of clients,
// other than one that the question names, is never for the whole network.
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
	{PathConnections, "", "open connections (userspace mode), with addresses of clients", Local},
	{PathHistory, "", "traffic of the last minutes", Local},
	{PathNames, "", "names of Services", Local},
	{PathEvents, "", "events with names of Services and errors", Local},
	{PathDump, "", "an archive with all of this, the configuration and the rules", Local},
}

// reach returns who may ask a question of a path, and whether the path is known.
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

// exposed passes on the questions of other hosts that the table allows. Callers are checked before if authorized is set.
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
