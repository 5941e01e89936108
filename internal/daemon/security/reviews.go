// SPDX-License-Identifier: Apache-2.0

package security

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	authentication "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorization "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/sluice-proxy/sluice/observe/web"
)

const (
	// remembered bounds each cache.
	remembered = 1000
	// allowedFor and deniedFor are how long an answer of the API server is valid.
	allowedFor, deniedFor = time.Minute, 10 * time.Second
	// reviewMax bounds the check of one request, inFlight the requests that are checked: half of them of strangers.
	reviewMax, inFlight = 5 * time.Second, 16
	// tokenMax bounds a token, and pathMax the path of a request, in bytes.
	tokenMax, pathMax = 16 << 10, 1 << 10
)

// Address describes the address that is guarded.
type Address struct {
	// Header is the header with the token. Audience is that of the token; empty means the API server. With APIServer,
	// tokens for the API server are accepted as well.
	Header, Audience string
	APIServer        bool
	// Failed receives errors of reviews, Refused the status of each refused request. They must not block.
	Failed  func(error)
	Refused func(status int)
}

// Reviews asks the API server about callers, and remembers its answers for a short time. Any goroutine may use it.
type Reviews struct {
	at     Address
	tokens authentication.TokenReviewInterface
	access authorization.SubjectAccessReviewInterface

	turns turns
	// users are by the digest of their token. allowed and denied are by question. Strangers can only fill denied.
	users, allowed, denied *cache.LRUExpireCache
}

// NewReviews makes reviews by a client of the API server, whose connections it uses.
func NewReviews(client *rest.Config, at Address) (*Reviews, error) {
	return newReviews(client, at, clock.RealClock{})
}

func newReviews(client *rest.Config, at Address, now cache.Clock) (*Reviews, error) {
	client = rest.CopyConfig(client)
	client.QPS, client.RateLimiter = -1, nil // turns bound the requests
	transport, err := rest.HTTPClientFor(client)
	if err != nil {
		return nil, fmt.Errorf("make the client for reviews: %w", err)
	}
	tokens, err := authentication.NewForConfigAndClient(client, transport)
	if err != nil {
		return nil, fmt.Errorf("make the client for reviews of tokens: %w", err)
	}
	access, err := authorization.NewForConfigAndClient(client, transport)
	if err != nil {
		return nil, fmt.Errorf("make the client for reviews of access: %w", err)
	}
	newCache := func() *cache.LRUExpireCache { return cache.NewLRUExpireCacheWithClock(remembered, now) }
	return &Reviews{
		at: at, tokens: tokens.TokenReviews(), access: access.SubjectAccessReviews(),
		turns: newTurns(newCache), users: newCache(), allowed: newCache(), denied: newCache(),
	}, nil
}

// refusal is the error response to a caller.
type refusal struct {
	code int
	text string
}

func refuse(code int, format string, args ...any) *refusal {
	return &refusal{code, fmt.Sprintf(format, args...)}
}

// digest identifies a token or certificate in caches, which must not hold tokens.
type digest [sha256.Size]byte

// question is the key of a remembered answer. verb and path are empty for the token alone.
type question struct {
	who        digest
	verb, path string
}

// caller is who sent a request: a token, or the user of a certificate.
type caller struct {
	who   digest
	token string
	user  *authenticationv1.UserInfo
}

// callerOf returns the caller of a request. A verified client certificate goes before a token in the header.
func callerOf(r *http.Request, header string) (*caller, *refusal) {
	if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		leaf := r.TLS.VerifiedChains[0][0]
		user := &authenticationv1.UserInfo{Username: leaf.Subject.CommonName, Groups: slices.Concat(leaf.Subject.Organization, []string{"system:authenticated"})}
		return &caller{who: sha256.Sum256(leaf.Raw), user: user}, nil
	}
	scheme, token, _ := strings.Cut(r.Header.Get(header), " ")
	token = strings.TrimSpace(token)
	if !strings.EqualFold(scheme, "Bearer") || token == "" || len(token) > tokenMax {
		return nil, refuse(http.StatusUnauthorized, "unauthorized: send a token of the cluster (%s: Bearer) or, to the metrics address, a client certificate", header)
	}
	return &caller{who: sha256.Sum256([]byte(token)), token: token}, nil
}

// judge returns nil if the caller of a request may have the answer.
func (r *Reviews) judge(request *http.Request) *refusal {
	c, refused := callerOf(request, r.at.Header)
	if refused != nil {
		return refused
	}
	q := question{c.who, strings.ToLower(request.Method), request.URL.Path}
	if len(q.path) > pathMax {
		return refuse(http.StatusRequestURITooLong, "path too long")
	}
	if known, done := r.recall(c, q); done {
		return known
	}
	from := web.SourceOf(request)
	done, busy := r.turns.take(c.who, from)
	if busy != "" {
		return refuse(http.StatusServiceUnavailable, "busy: %s; try again later", busy)
	}
	defer done()
	ctx, cancel := context.WithTimeout(request.Context(), reviewMax)
	defer cancel()
	refused, err := r.ask(ctx, c, q)
	if err == nil {
		if refused == nil {
			r.turns.allowed(c.who, from)
		}
		return refused
	}
	if request.Context().Err() == nil {
		r.at.Failed(err)
	}
	return refuse(http.StatusServiceUnavailable, "cannot check the caller: the API server gave no answer; try again later (the proxy's log has the error)")
}

// recall completes a caller with its user, and returns the answer if it is remembered.
func (r *Reviews) recall(c *caller, q question) (*refusal, bool) {
	if c.user == nil {
		if refused, found := r.denied.Get(question{who: c.who}); found {
			return refused.(*refusal), true
		}
		user, found := r.users.Get(c.who)
		if !found {
			return nil, false // an expired token allows nothing
		}
		c.user = user.(*authenticationv1.UserInfo)
	}
	if refused, found := r.denied.Get(q); found {
		return refused.(*refusal), true
	}
	_, allowed := r.allowed.Get(q)
	return nil, allowed
}

// ask asks the API server, and remembers what it answers.
func (r *Reviews) ask(ctx context.Context, c *caller, q question) (*refusal, error) {
	if c.user == nil {
		user, err := r.userOf(ctx, c.token)
		if err != nil {
			return nil, err
		}
		if user == nil {
			return r.deny(question{who: c.who}, refuse(http.StatusUnauthorized, "unauthorized: the API server does not accept the token")), nil
		}
		c.user = user
		r.users.Add(c.who, c.user, allowedFor)
	}
	answer, err := r.access.Create(ctx, accessReview(c.user, q), metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("SubjectAccessReview: %w", err)
	}
	if !answer.Status.Allowed {
		return r.deny(q, refuse(http.StatusForbidden, "forbidden: user %.200q has no permission for verb %s of nonResourceURL %s", c.user.Username, q.verb, q.path)), nil
	}
	r.allowed.Add(q, true, allowedFor)
	return nil, nil
}

// userOf returns the user of a token; nil if the API server does not accept it.
func (r *Reviews) userOf(ctx context.Context, token string) (*authenticationv1.UserInfo, error) {
	for _, audience := range r.at.audiences(token) {
		review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
		if audience != "" {
			review.Spec.Audiences = []string{audience}
		}
		answer, err := r.tokens.Create(ctx, review, metav1.CreateOptions{})
		if err != nil {
			return nil, fmt.Errorf("TokenReview: %w", err)
		}
		// An API server that does not support audiences returns none, and has not checked that of the token.
		if answer.Status.Authenticated && (audience == "" || slices.Contains(answer.Status.Audiences, audience)) {
			return &answer.Status.User, nil
		}
	}
	return nil, nil
}

// audiences returns the audiences for which a token may be; an empty one is the API server. The claim of a token saves
// a request. The API server verifies it.
func (a *Address) audiences(token string) []string {
	if a.Audience == "" || !a.APIServer {
		return []string{a.Audience}
	}
	var claims struct {
		Audience any `json:"aud"` // a text or a list
	}
	parts := strings.Split(token, ".")
	if len(parts) == 3 {
		if text, err := base64.RawURLEncoding.DecodeString(parts[1]); err == nil && json.Unmarshal(text, &claims) == nil {
			many, _ := claims.Audience.([]any)
			if claims.Audience == a.Audience || slices.Contains(many, any(a.Audience)) {
				return []string{a.Audience}
			}
			return []string{""}
		}
	}
	return []string{a.Audience, ""}
}

func (r *Reviews) deny(q question, refused *refusal) *refusal {
	r.denied.Add(q, refused, deniedFor)
	return refused
}

// accessReview asks whether a user may use a path.
func accessReview(user *authenticationv1.UserInfo, q question) *authorizationv1.SubjectAccessReview {
	extra := make(map[string]authorizationv1.ExtraValue, len(user.Extra))
	for key, values := range user.Extra {
		extra[key] = authorizationv1.ExtraValue(values)
	}
	return &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user.Username, UID: user.UID, Groups: user.Groups, Extra: extra,
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: q.path, Verb: q.verb},
	}}
}
