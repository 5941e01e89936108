// SPDX-License-Identifier: Apache-2.0

package security

import (
	"net/http"

	"github.com/sluice-proxy/sluice/observe/web"
)

// NodeHealth is the path at which the guarded server shows the health of the node, with details.
const NodeHealth = "/node"

// Guard passes on requests of callers that the API server allows. Health without details needs no permission, as
// load balancers and the kubelet have no token.
func (r *Reviews) Guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		if open(request) {
			next.ServeHTTP(w, request)
			return
		}
		refused := r.judge(request)
		if refused == nil {
			next.ServeHTTP(w, request)
			return
		}
		r.at.Refused(refused.code)
		switch refused.code {
		case http.StatusUnauthorized:
			w.Header().Set("WWW-Authenticate", "Bearer")
		case http.StatusServiceUnavailable:
			w.Header().Set("Retry-After", "5")
		}
		http.Error(w, refused.text, refused.code)
	})
}

// open reports whether everyone may have the answer.
func open(r *http.Request) bool {
	switch r.URL.Path {
	case "/healthz", "/healthz/ping", NodeHealth + "/healthz", NodeHealth + "/livez":
		return !r.URL.Query().Has("verbose")
	default:
		return false
	}
}

// WithoutDetails answers requests of other hosts for details with status 403: the health server has no TLS, so a
// token would be readable on the way.
func WithoutDetails(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("verbose") && !web.OnHost(r) {
			http.Error(w, "forbidden: the health server gives details to clients on this node only; "+
				"others use a token and "+NodeHealth+r.URL.Path+"?verbose at the metrics address, if that is reachable by HTTPS", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}
