// SPDX-License-Identifier: Apache-2.0

//go:build linux

package gone

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/sluice-proxy/sluice/internal/inspect"
	"github.com/sluice-proxy/sluice/observe/web"
)

// eachMax bounds the waiting queries of one address. preStop hooks query from the address of their pod.
const eachMax = 16

// Handler answers over the network whether an endpoint is gone, without names of Services. Up to most queries wait at a
// time until their endpoint is gone, and up to most look once; each address may use eachMax of both. A query that one
// look answers needs no place among those that wait. next serves other paths.
func Handler(ask func(context.Context, inspect.GoneQuery) *inspect.Gone, most int, next http.Handler) http.Handler {
	looking, waiting := web.NewPlaces(most, eachMax), web.NewPlaces(most, eachMax)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		endpoint, ours := strings.CutPrefix(r.URL.Path, inspect.PathEndpoint)
		if !ours {
			next.ServeHTTP(w, r)
			return
		}
		if r.Method != http.MethodGet {
			w.Header().Set("Allow", http.MethodGet)
			fail(w, http.StatusMethodNotAllowed, "only GET is allowed")
			return
		}
		a, err := inspect.AnswerGone(w, r, endpoint, func(ctx context.Context, q inspect.GoneQuery) *inspect.Gone {
			from, end, wait := web.SourceOf(r), time.Now().Add(q.Wait), q.Wait
			q.Wait = 0
			a := askAt(ctx, looking, from, q, ask)
			if q.Wait = min(wait, time.Until(end)); a == nil || a.Gone || q.Wait <= 0 {
				return a
			}
			return askAt(ctx, waiting, from, q, ask)
		})
		switch {
		case err != nil:
			fail(w, http.StatusBadRequest, err.Error())
		case a == nil:
			w.Header().Set("Retry-After", "1")
			fail(w, http.StatusTooManyRequests, fmt.Sprintf("%d questions about endpoints are waiting already, or %d of this address; try again", most, eachMax))
		default:
			answer(w, http.StatusOK, a.Public())
		}
	})
}

// askAt asks while it holds a place. It returns nil if none is free.
func askAt(ctx context.Context, places *web.Places, from netip.Prefix, q inspect.GoneQuery, ask func(context.Context, inspect.GoneQuery) *inspect.Gone) *inspect.Gone {
	if !places.Take(from) {
		return nil
	}
	defer places.Leave(from)
	return ask(ctx, q)
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
