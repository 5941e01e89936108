package fleet

import (
	"context"
	"fmt"
	"net/http"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"

	"github.com/sluice-proxy/sluice/internal/inspect"
)

const (
	// account is the ServiceAccount whose tokens the proxies accept (deploy/fleet).
	account = "sluice-fleet"
	// tokenLife is the shortest life of a token that an API server grants. One for a longer command lives tokenRest
	// longer than the command.
	tokenLife, tokenRest = 10 * time.Minute, time.Minute
)

// authenticate gets a token for the proxies, unless there is one: once per command. Without the ServiceAccount, the proxies are asked over
// HTTP, as without security.inspection. The credentials of the user are for the API server only.
func (c *cluster) authenticate(ctx context.Context) (note string, err error) {
	if c.scheme != "" {
		return "", nil
	}
	life := tokenLife
	if end, limited := ctx.Deadline(); limited {
		life = max(life, time.Until(end)+tokenRest)
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		Audiences: []string{inspect.TokenAudience}, ExpirationSeconds: ptr.To(int64(life.Seconds())),
	}}
	var made authenticationv1.TokenRequest
	err = c.api.Post().Namespace(c.flags.proxyNamespace).Resource("serviceaccounts").Name(account).SubResource("token").Body(request).Do(ctx).Into(&made)
	switch {
	case apierrors.IsNotFound(err):
		return "", nil
	case apierrors.IsForbidden(err):
		return fmt.Sprintf("proxies with security.inspection do not answer without a token for ServiceAccount %s/%s: %v\n", c.flags.proxyNamespace, account, err), nil
	case err != nil:
		return "", fmt.Errorf("request a token for ServiceAccount %s/%s: %w", c.flags.proxyNamespace, account, err)
	}
	c.scheme, c.transport = "https:", bearer{made.Status.Token, c.transport}
	return "", nil
}

// bearer adds the token for the proxies to requests.
type bearer struct {
	token string
	next  http.RoundTripper
}

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set(inspect.TokenHeader, "Bearer "+b.token)
	return b.next.RoundTrip(r)
}
