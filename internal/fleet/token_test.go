// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"net/http"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sluice-proxy/sluice/internal/inspect"
	"github.com/sluice-proxy/sluice/test/apitest"
)

// TestTokens_OnePerCommand: with the ServiceAccount, each proxy is queried over HTTPS, with one token per command and
// no other credentials.
func TestTokens_OnePerCommand(t *testing.T) {
	s := newStand(t, 3)
	for i, n := range s.nodes {
		pod := "sluice-" + n.name + ":10253"
		plain := s.handlers[pod]
		delete(s.handlers, pod)
		s.handlers["https:"+pod] = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if got := r.Header.Get(inspect.TokenHeader); got != "Bearer for the proxies" || r.Header.Get("Authorization") != "" || i == 2 {
				http.Error(w, "unauthorized: "+got, http.StatusUnauthorized)
				return
			}
			plain.ServeHTTP(w, r)
		})
	}
	s.api.Issue("for the proxies", time.Hour)
	out, err := s.run(t, "status")
	if err == nil || !strings.Contains(out, "1 of 3 nodes did not answer") || !strings.Contains(out, "unauthorized: Bearer for the proxies") {
		t.Errorf("%v\n%s", err, out)
	}
	if n := len(s.api.Asked(apitest.Token)); n != 1 {
		t.Errorf("%d tokens are requested", n)
	}
	s.api.Issue("for the proxies", time.Second) // too short for a request
	if _, err := s.run(t, "status"); err == nil || len(s.api.Asked(apitest.Token)) < 4 {
		t.Errorf("%v; a token is not renewed: %d tokens are requested", err, len(s.api.Asked(apitest.Token)))
	}
}

// TestTokens_ForbiddenUsesPlainHTTP: without the permission to request a token, proxies without authentication answer,
// and the output gives the reason why others do not.
func TestTokens_ForbiddenUsesPlainHTTP(t *testing.T) {
	s := newStand(t, 2)
	s.api.Reject(apitest.Token, apierrors.NewForbidden(schema.GroupResource{Resource: "serviceaccounts/token"}, account, nil))
	out, err := s.run(t, "status")
	if err != nil || !strings.Contains(out, "security.inspection do not answer without a token: request a token for ServiceAccount kube-system/sluice-fleet") {
		t.Errorf("%v\n%s", err, out)
	}
	s.api.Reject(apitest.Token, apierrors.NewInternalError(http.ErrServerClosed))
	if _, err := s.run(t, "status"); err == nil || !strings.Contains(err.Error(), "request a token for ServiceAccount kube-system/sluice-fleet") {
		t.Error(err)
	}
}
