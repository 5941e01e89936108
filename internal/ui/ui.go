// SPDX-License-Identifier: Apache-2.0

// Package ui serves the page about a running proxy: an overview with its traffic, its Services, one Service's timeline,
// endpoints and clients, the domains with their queues, and problems. The page is read-only, embedded in the program,
// and requests data from this server only. Package inspect defines its data; see docs/kubectl-sluice.md.
package ui

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strings"
	"time"

	"github.com/sluice-proxy/sluice/internal/inspect"
)

//go:embed assets
var assets embed.FS

// Path is where the page is mounted.
const Path = "/ui/"

// policy lets the page use its own files and nothing else: no inline script or style, no other
// host, no frame around it.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// Handler serves the page and its data below Path. The API's handler, which also serves the local socket, answers its
// queries. The list of Services comes from the source, which is queried at most once per refresh, regardless of the
// number of open pages.
func Handler(api http.Handler, source inspect.Source) http.Handler {
	const prefix = Path + "api"
	mux := http.NewServeMux()
	mux.Handle("GET "+prefix+pathChanges, newFeed(source))
	questions := http.StripPrefix(prefix, api)
	// These are only the queries of the page: an archive, for example, is for the local socket only.
	for _, question := range []string{inspect.PathService, inspect.PathEndpoints, inspect.PathExplain,
		inspect.PathTop, inspect.PathHistory, inspect.PathConnections} {
		mux.Handle("GET "+prefix+question, questions)
	}
	mux.Handle("GET "+prefix+"/", http.NotFoundHandler())
	mux.Handle("GET "+Path, Files(Path, assets))
	return Guard(mux)
}

// Guard sets the headers of every answer, and rejects requests from the pages of other sites: such a page could not
// read the answers, but it could keep this server busy.
func Guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Sec-Fetch-Site") == "cross-site" && r.Header.Get("Sec-Fetch-Mode") != "navigate" {
			http.Error(w, "this page answers its own questions only", http.StatusForbidden)
			return
		}
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("X-Content-Type-Options", "nosniff")
		next.ServeHTTP(w, r)
	})
}

// Files serves the embedded files of this package below a path. Another page has its own files in the directory assets,
// which replace those with the same name. A browser asks each time whether a file has changed, because the program may
// have been replaced.
func Files(below string, own fs.FS) http.Handler {
	type file struct {
		text []byte
		tag  string
	}
	all := map[string]file{}
	for _, from := range []fs.FS{assets, own} {
		err := fs.WalkDir(from, "assets", func(name string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			text, err := fs.ReadFile(from, name)
			sum := sha256.Sum256(text)
			all[below+strings.TrimPrefix(name, "assets/")] = file{text, `"` + hex.EncodeToString(sum[:8]) + `"`}
			return err
		})
		if err != nil {
			panic("ui: the embedded files cannot be read: " + err.Error())
		}
	}
	all[below] = all[below+"index.html"]
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		found, known := all[r.URL.Path]
		if !known {
			http.NotFound(w, r)
			return
		}
		kind := mime.TypeByExtension(path.Ext(r.URL.Path))
		if r.URL.Path == below {
			kind = "text/html; charset=utf-8"
		}
		w.Header().Set("Content-Type", kind)
		w.Header().Set("Cache-Control", "no-cache")
		w.Header().Set("ETag", found.tag)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(found.text))
	})
}
