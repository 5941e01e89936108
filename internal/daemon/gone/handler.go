//go:build linux

package gone

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/sluice-proxy/sluice/internal/inspect"
	"github.com/sluice-proxy/sluice/observe/web"
)

// Handler answers over the network whether an endpoint is gone, without names of Services. It answers most
// questions at a time. Other paths are those of next.
func Handler(ask func(context.Context, inspect.GoneQuery) *inspect.Gone, most int, next http.Handler) http.Handler {
	places := make(chan struct{}, most)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		endpoint, ours := strings.CutPrefix(r.URL.Path, Path)
		if !ours {
			next.ServeHTTP(w, r)
			return
		}
		if r.Method != http.MethodGet {
			w.Header().Set("Allow", http.MethodGet)
			fail(w, http.StatusMethodNotAllowed, "only GET is allowed")
			return
		}
		select {
		case places <- struct{}{}:
			defer func() { <-places }()
		default:
			w.Header().Set("Retry-After", "1")
			fail(w, http.StatusTooManyRequests, fmt.Sprintf("%d questions about endpoints are waiting already; try again", most))
			return
		}
		a, err := inspect.AnswerGone(w, r, endpoint, ask)
		if err != nil {
			fail(w, http.StatusBadRequest, err.Error())
			return
		}
		answer(w, http.StatusOK, a.Public())
	})
}

func fail(w http.ResponseWriter, code int, text string) {
	answer(w, code, inspect.Failure{Error: text})
}

func answer(w http.ResponseWriter, code int, made any) {
	w.Header().Set("Cache-Control", "no-store")
	text, err := json.Marshal(made)
	if err != nil {
		panic(errors.Join(errors.New("gone: plain values that JSON cannot express"), err))
	}
	web.Answer(w, code, web.JSON, append(text, '\n'))
}
