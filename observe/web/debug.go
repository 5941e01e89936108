package web

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/pprof"
	"strconv"
)

// addDebugging adds the pages below /debug, which /statusz does not list.
func addDebugging(mux *http.ServeMux, c Config) {
	if c.Actors != nil {
		mux.Handle("/debug/actors", actors(c.Actors))
	}
	if !c.Profiling {
		return
	}
	mux.Handle("/debug/pprof", http.RedirectHandler("/debug/pprof/", http.StatusFound))
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	if c.SetVerbosity == nil {
		return
	}
	index := plain("/debug/flags/v: the verbosity of the logs; PUT a number\n")
	mux.Handle("/debug/flags", index)
	mux.Handle("/debug/flags/{$}", index)
	mux.Handle("/debug/flags/v", verbosity(c.SetVerbosity))
}

// actorsDefault is how many actors are shown unless the request says otherwise. Those
// in trouble come first.
const actorsDefault = 100

// actors shows the state of the actors and of what they lead to. The parameter limit
// bounds the number of actors shown; 0 shows all.
func actors(report func(limit int) any) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		limit := actorsDefault
		if text := r.URL.Query().Get("limit"); text != "" {
			n, err := strconv.Atoi(text)
			if err != nil || n < 0 {
				http.Error(w, fmt.Sprintf("parameter \"limit\": %q: want a number, not negative", text), http.StatusBadRequest)
				return
			}
			limit = n
		}
		text, err := json.MarshalIndent(report(limit), "", "  ")
		if err != nil {
			http.Error(w, fmt.Sprintf("the report cannot be shown: %v", err), http.StatusInternalServerError)
			return
		}
		answer(w, http.StatusOK, "application/json", append(text, '\n'))
	})
}

// verbosityMax bounds what is read of a request, in bytes.
const verbosityMax = 64

// verbosity sets the verbosity of the logs. Anything but PUT is not acceptable, as
// with kube-proxy.
func verbosity(set func(string) (string, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		code, text := http.StatusNotAcceptable, "want PUT, with a number"
		if r.Method == http.MethodPut {
			code, text = putVerbosity(io.LimitReader(r.Body, verbosityMax), set)
		}
		answer(w, code, "text/plain", []byte(text+"\n"))
	})
}

func putVerbosity(body io.Reader, set func(string) (string, error)) (code int, text string) {
	value, err := io.ReadAll(body)
	if err == nil {
		text, err = set(string(value))
	}
	if err != nil {
		return http.StatusBadRequest, err.Error()
	}
	return http.StatusOK, text
}
