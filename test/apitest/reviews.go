package apitest

import (
	"fmt"
	"io"
	"net/http"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
)

// Reviews of callers. Nothing is stored.
const (
	TokenReviews         = "tokenreviews"
	SubjectAccessReviews = "subjectaccessreviews"
)

// Grant gives a token to a user, who may do what the function allows; nil takes the token back.
func (s *Server) Grant(token, user string, allows func(*authorizationv1.NonResourceAttributes) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if allows == nil {
		delete(s.tokens, token)
		return
	}
	s.tokens[token], s.rights[user] = user, allows
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
	s.decide(object)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	_ = codecs.EncoderForVersion(jsonSerializer, object.GetObjectKind().GroupVersionKind().GroupVersion()).Encode(object, w)
}

// decide fills in the status of a review.
func (s *Server) decide(object runtime.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch review := object.(type) {
	case *authenticationv1.TokenReview:
		user, known := s.tokens[review.Spec.Token]
		review.Status.Authenticated, review.Status.User = known, authenticationv1.UserInfo{Username: user}
	case *authorizationv1.SubjectAccessReview:
		allows := s.rights[review.Spec.User]
		review.Status.Allowed = allows != nil && review.Spec.NonResourceAttributes != nil && allows(review.Spec.NonResourceAttributes)
	}
}
