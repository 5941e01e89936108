// SPDX-License-Identifier: Apache-2.0

package health

import (
	"fmt"
	"net/http"

	"github.com/sluice-proxy/sluice/observe/web"
)

// Readiness describes what a new process lacks.
type Readiness struct {
	// Missing is one line; it is empty if nothing is missing.
	Missing string
	// Services are those that this process does not follow, but the previous process did.
	Services []Affected
}

// Ready reports whether nothing is missing.
func (r *Readiness) Ready() bool { return r.Missing == "" && len(r.Services) == 0 }

// Text says what is missing in one line. Names and reasons are for clients on this host only: the reasons contain errors
// of the kernel.
func (r *Readiness) Text(details bool) string {
	if r.Missing != "" || len(r.Services) == 0 {
		return r.Missing
	}
	if !details {
		return fmt.Sprintf("Services that this process does not follow: %d; their names are shown to clients on the node only", len(r.Services))
	}
	named, more := bounded(r.Services)
	line := "this process does not follow these Services, which the previous process followed:"
	for i := range named {
		line += " " + named[i].Service + " (" + named[i].Reason + ")"
	}
	if more > 0 {
		line += fmt.Sprintf(" and %d more", more)
	}
	return line
}

// ReadyHandler answers /readyz: 200, or 503 with a line that says what is missing.
func ReadyHandler(ready func() Readiness) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		now := ready()
		if now.Ready() {
			web.Answer(w, http.StatusOK, web.Text, []byte("ready\n"))
			return
		}
		web.Answer(w, http.StatusServiceUnavailable, web.Text, []byte("not ready: "+now.Text(web.OnHost(r))+"\n"))
	})
}
