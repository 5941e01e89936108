// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"golang.org/x/oauth2"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/sluice-proxy/sluice/internal/inspect"
)

const (
	// account is the ServiceAccount whose tokens the proxies accept (deploy/fleet).
	account = "sluice-fleet"
	// tokenLife is the shortest life of a token that an API server grants. Commands that run longer request another token.
	tokenLife = 10 * time.Minute
	// tokenTime bounds a request for a token.
	tokenTime = 10 * time.Second
)

// tokens requests tokens for the proxies.
type tokens struct {
	api       *rest.RESTClient
	namespace string
}

// authenticate makes later requests to the proxies contain a token, unless they do already. Without the ServiceAccount,
// it leaves them on HTTP, as without security.inspection. The proxies never get the credentials of the user.
func (c *cluster) authenticate() (note string, err error) {
	if c.scheme != "" {
		return "", nil
	}
	requests := tokens{c.api, c.flags.proxyNamespace}
	first, err := requests.Token()
	switch {
	case apierrors.IsNotFound(err):
		return "", nil
	case apierrors.IsForbidden(err):
		return fmt.Sprintf("proxies with security.inspection do not answer without a token: %v\n", err), nil
	case err != nil:
		return "", err
	}
	c.scheme, c.transport = "https:", bearer{oauth2.ReuseTokenSource(first, requests), c.transport}
	return "", nil
}

// Token implements oauth2.TokenSource.
func (t tokens) Token() (*oauth2.Token, error) {
	ctx, cancel := context.WithTimeout(context.Background(), tokenTime)
	defer cancel()
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		Audiences: []string{inspect.TokenAudience}, ExpirationSeconds: ptr.To(int64(tokenLife.Seconds())),
	}}
	var made authenticationv1.TokenRequest
	err := t.api.Post().Namespace(t.namespace).Resource("serviceaccounts").Name(account).SubResource("token").Body(request).Do(ctx).Into(&made)
	if err != nil {
		return nil, fmt.Errorf("request a token for ServiceAccount %s/%s: %w", t.namespace, account, err)
	}
	return &oauth2.Token{AccessToken: made.Status.Token, Expiry: made.Status.ExpirationTimestamp.Time}, nil
}

// bearer adds the token for the proxies to requests.
type bearer struct {
	tokens oauth2.TokenSource
	next   http.RoundTripper
}

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	token, err := b.tokens.Token()
	if err != nil {
		return nil, err
	}
	r = r.Clone(r.Context())
	r.Header.Set(inspect.TokenHeader, "Bearer "+token.AccessToken)
	return b.next.RoundTrip(r)
}
