// SPDX-License-Identifier: Apache-2.0

package security

import (
	"encoding/base64"
	"fmt"
	"net/http/httptest"
	"net/netip"
	"slices"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
)

// status makes a request from an address, and returns the status.
func (g *guarded) status(from, token, path string) int {
	r := httptest.NewRequest("GET", path, nil)
	r.RemoteAddr = from
	r.Header.Set(g.header, "Bearer "+token)
	answer := httptest.NewRecorder()
	g.handler.ServeHTTP(answer, r)
	return answer.Code
}

func everything(*authorizationv1.NonResourceAttributes) bool { return true }

// flood sends invalid tokens from an address, more than any limit allows.
func (g *guarded) flood(from string) {
	for i := range 3 * strangersBurst {
		g.status(from, fmt.Sprintf("invalid-%s-%d", from, i), "/metrics")
	}
}

// TestTurns_KnownCallerNewToken: a known caller with a new token gets its answer although many others send invalid
// tokens. The token of Prometheus is replaced each hour, and kubectl sluice has another one for each command.
func TestTurns_KnownCallerNewToken(t *testing.T) {
	g := newGuarded(t)
	if code := g.status("192.0.2.1:1", "scraper", "/metrics"); code != 200 {
		t.Fatal(code)
	}
	for i := range 50 {
		g.flood(fmt.Sprintf("10.244.0.%d:4000", i))
	}
	for i := range 10 {
		token := fmt.Sprint("replaced-", i)
		g.api.Grant(token, "prometheus", everything)
		if code := g.status(fmt.Sprintf("192.0.2.1:%d", 2+i), token, "/metrics"); code != 200 {
			t.Errorf("new token %d: status %d", i, code)
		}
	}
}

// TestTurns_OneAddressFloods: an unknown caller gets its answer while another address, or several of one IPv6 network,
// send invalid tokens.
func TestTurns_OneAddressFloods(t *testing.T) {
	for name, flood := range map[string][]string{
		"IPv4": {"10.244.0.1:1", "10.244.0.1:2", "[::ffff:10.244.0.1]:3"},
		"IPv6": {"[2001:db8:0:1::1]:1", "[2001:db8:0:1::2]:1", "[2001:db8:0:1:ffff::]:1", "[2001:db8:0:1::1%eth0]:1"},
	} {
		g := newGuarded(t)
		for _, from := range flood {
			g.flood(from)
		}
		if asked := g.asked(); asked > 2*sourceBurst {
			t.Errorf("%s: %d questions to the API server", name, asked)
		}
		for i, from := range []string{"10.244.0.2:1", "[2001:db8:0:2::1]:1"} {
			token := fmt.Sprint("new-", i)
			g.api.Grant(token, "new", everything)
			if code := g.status(from, token, "/metrics"); code != 200 {
				t.Errorf("%s: status %d for a caller at %s", name, code, from)
			}
		}
	}
}

// TestTurns_KnownCallerBounded: a caller that may read one path cannot cause thousands of requests to the API server.
func TestTurns_KnownCallerBounded(t *testing.T) {
	g := newGuarded(t)
	g.expect(t, "scraper", "GET", "/metrics", 200, "secret")
	before := g.asked()
	for i := range 2000 {
		g.status("192.0.2.1:1234", "scraper", fmt.Sprint("/x", i))
	}
	if asked := g.asked() - before; asked < callerBurst/2 || asked > 1000 {
		t.Errorf("%d questions to the API server", asked)
	}
	g.expect(t, "scraper", "GET", "/metrics", 200, "secret")
}

// TestTurns_ManyAddresses: the number of remembered addresses is limited.
func TestTurns_ManyAddresses(t *testing.T) {
	g := newGuarded(t)
	for i := range 3 * remembered {
		g.status(netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 1).String(), "invalid", "/metrics")
	}
	if n := len(g.reviews.turns.sources.all.Keys()); n > remembered {
		t.Errorf("%d addresses are remembered", n)
	}
}

// TestReviews_MetricsAudiences: the metrics address accepts tokens for its audience and for the API server.
func TestReviews_MetricsAudiences(t *testing.T) {
	g := newGuardedAt(t, Address{Header: "Authorization", Audience: "sluice.dev", APIServer: true})
	jwt := func(claims string) string {
		return "e30." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".c2ln"
	}
	own, list, server, other := jwt(`{"aud":"sluice.dev"}`), jwt(`{"aud":["x","sluice.dev"]}`), jwt(`{"aud":"https://kubernetes"}`), jwt(`{"aud":["vault"]}`)
	for token, audience := range map[string]string{own: "sluice.dev", list: "sluice.dev", server: "", other: "vault", "opaque": "", "opaque-own": "sluice.dev"} {
		g.api.Grant(token, "prometheus", everything, audience)
		want := 200
		if audience == "vault" {
			want = 401
		}
		if code := g.status("192.0.2.1:1", token, "/metrics"); code != want {
			t.Errorf("token %q for %q: status %d", token, audience, code)
		}
	}
	if got := g.reviews.at.audiences(own); !slices.Equal(got, []string{"sluice.dev"}) {
		t.Errorf("a token that says its audience is asked about for %q", got)
	}
}
