// SPDX-License-Identifier: Apache-2.0

package apitest

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Reviews of callers. Nothing is stored.
const (
	TokenReviews         = "tokenreviews"
	SubjectAccessReviews = "subjectaccessreviews"
	Token                = "token" // of a ServiceAccount
)

// granted is the user of a token. It has an audience; empty is the API server itself.
type granted struct{ user, audience string }

// Issue sets the token that requests for one return, and its life; empty means that there is no such ServiceAccount.
func (s *Server) Issue(token string, life time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.issued, s.life = token, life
}

// Grant gives a token to a user, who may do what the function allows; nil takes the token back. It has an audience, or
// that of the API server.
func (s *Server) Grant(token, user string, allows func(*authorizationv1.NonResourceAttributes) bool, audience ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if allows == nil {
		delete(s.tokens, token)
		return
	}
	s.tokens[token], s.rights[user] = granted{user, strings.Join(audience, "")}, allows
}

// review answers a review. The client may send and accept JSON only.
func (s *Server) review(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		rejected(w, apierrors.NewBadRequest(err.Error()))
		return
	}
	object, _, err := codecs.UniversalDeserializer().Decode(body, nil, nil)
	if err != nil {
		rejected(w, apierrors.NewBadRequest(fmt.Sprintf("review: %v", err)))
		return
	}
	if !s.decide(object) {
		rejected(w, apierrors.NewNotFound(schema.GroupResource{Resource: "serviceaccounts"}, r.URL.Path))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	_ = codecs.EncoderForVersion(jsonSerializer, object.GetObjectKind().GroupVersionKind().GroupVersion()).Encode(object, w)
}

// decide fills in the status of a review. It reports false if there is no such object.
func (s *Server) decide(object runtime.Object) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch review := object.(type) {
	case *authenticationv1.TokenReview:
		found, known := s.tokens[review.Spec.Token]
		if known && found.audience == strings.Join(review.Spec.Audiences, "") {
			review.Status.Authenticated, review.Status.User = true, authenticationv1.UserInfo{Username: found.user}
			review.Status.Audiences = review.Spec.Audiences
		}
	case *authenticationv1.TokenRequest:
		review.Status.Token, review.Status.ExpirationTimestamp = s.issued, metav1.NewTime(time.Now().Add(s.life))
		return s.issued != ""
	case *authorizationv1.SubjectAccessReview:
		allows := s.rights[review.Spec.User]
		review.Status.Allowed = allows != nil && review.Spec.NonResourceAttributes != nil && allows(review.Spec.NonResourceAttributes)
	}
	return true
}
