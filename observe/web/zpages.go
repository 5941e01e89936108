// SPDX-License-Identifier: Apache-2.0

package web

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"mime"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-proxy/sluice/internal/terminal"
)

// zpage is a page such as /flagz and /statusz: a text for people, or an object for programs that
// ask for its kind, group and version.
type zpage struct {
	// kind is the object's kind in group config.k8s.io.
	kind string
	text func() string
	// fields returns the object's contents without its type and name.
	fields func() map[string]any
}

const (
	zGroup      = "config.k8s.io"
	zVersion    = "v1beta1"
	zDeprecated = "v1alpha1"
)

func flagz(current func() map[string]string) http.Handler {
	return &zpage{
		kind: "Flagz",
		text: func() string {
			flags := current()
			var text strings.Builder
			fmt.Fprintf(&text, "%s flagz, for people only\n\n", component)
			for _, name := range slices.Sorted(maps.Keys(flags)) {
				fmt.Fprintf(&text, "%s=%s\n", name, flags[name])
			}
			return text.String()
		},
		fields: func() map[string]any { return map[string]any{"flags": current()} },
	}
}

func statusz(p Program, paths []string) http.Handler {
	up := func() time.Duration { return max(0, time.Since(p.Started)).Truncate(time.Second) }
	return &zpage{
		kind: "Statusz",
		text: func() string {
			return fmt.Sprintf("%s statusz, for people only\n\nStarted: %s\nUp: %v\nGo version: %s\nBinary version: %s\nSluice version: %s\nPaths: %s\n",
				component, p.Started.Format(time.UnixDate), up(), runtime.Version(), p.Version, p.Own, strings.Join(paths, " "))
		},
		fields: func() map[string]any {
			return map[string]any{
				"startTime":     p.Started.UTC().Format(time.RFC3339),
				"uptimeSeconds": int64(up().Seconds()),
				"goVersion":     runtime.Version(),
				"binaryVersion": p.Version,
				"sluiceVersion": p.Own,
				"paths":         paths,
			}
		},
	}
}

// ServeHTTP answers in the form that the client accepts.
func (z *zpage) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	form, ok := negotiate(r.Header.Get("Accept"), z.kind)
	if !ok {
		http.Error(w, fmt.Sprintf("Accept must be text/plain, or application/json or application/yaml with ;as=%s;g=%s;v=%s",
			z.kind, zGroup, zVersion), http.StatusNotAcceptable)
		return
	}
	if form.mediaType == mediaText {
		Answer(w, http.StatusOK, Text, []byte(z.text()))
		return
	}
	object := z.fields()
	object["kind"], object["apiVersion"] = z.kind, zGroup+"/"+form.version
	object["metadata"] = map[string]string{"name": component}
	marshal := json.Marshal
	if form.mediaType == mediaYAML {
		marshal = terminal.YAML
	}
	text, err := marshal(object)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	if form.version == zDeprecated {
		w.Header().Set("Warning", fmt.Sprintf(`299 - "%s %s is deprecated; use %s"`, z.kind, zDeprecated, zVersion))
	}
	Answer(w, http.StatusOK, form.mediaType, text)
}

// The content types of answers.
const (
	JSON      = "application/json"
	Text      = mediaText + "; charset=utf-8"
	mediaText = "text/plain"
	mediaYAML = "application/yaml"
)

// weight returns the weight that an Accept header gives to a media type (RFC 9110, section
// 12.5.1), 0 to 1. Only a clause that names the type or its first part counts: "*/*" expresses no
// preference.
func weight(accept, mediaType string) float64 {
	quality := 0.0
	for _, c := range parseAccept(accept) {
		if c.kind != "*" && c.matches(mediaType) {
			quality = max(quality, c.quality)
		}
	}
	return quality
}

// PrefersJSON reports whether an Accept header weights JSON above plain text.
func PrefersJSON(accept string) bool { return weight(accept, JSON) > weight(accept, mediaText) }

// form is how a zpage is written; the version is empty for text.
type form struct {
	mediaType, version string
}

// negotiate chooses a form by an Accept header. As in Kubernetes, only a client that names its
// kind, group and version receives an object; a header that accepts everything gets the text.
func negotiate(header, kind string) (form, bool) {
	if strings.TrimSpace(header) == "" {
		return form{mediaType: mediaText}, true
	}
	for _, c := range parseAccept(header) {
		for _, mediaType := range []string{JSON, mediaYAML, mediaText} {
			if f, ok := c.form(mediaType, kind); ok {
				return f, true
			}
		}
	}
	return form{}, false
}

// clause is one part of an Accept header.
type clause struct {
	kind, subkind string
	parameters    map[string]string
	quality       float64
}

// parseAccept returns the clauses, the preferred ones first. It skips those that it cannot parse.
func parseAccept(header string) []clause {
	var clauses []clause
	for part := range strings.SplitSeq(header, ",") {
		mediaType, parameters, err := mime.ParseMediaType(part)
		if err != nil {
			continue
		}
		c := clause{parameters: parameters, quality: 1}
		c.kind, c.subkind, _ = strings.Cut(mediaType, "/")
		if q, given := parameters["q"]; given {
			c.quality, err = strconv.ParseFloat(q, 64)
			if err != nil || !(c.quality >= 0 && c.quality <= 1) {
				continue
			}
		}
		clauses = append(clauses, c)
	}
	slices.SortStableFunc(clauses, func(a, b clause) int {
		return cmp.Or(cmp.Compare(b.quality, a.quality), cmp.Compare(a.wildcards(), b.wildcards()))
	})
	return clauses
}

// wildcards counts the parts that a clause leaves open.
func (c *clause) wildcards() (n int) {
	for _, part := range []string{c.kind, c.subkind} {
		if part == "*" {
			n++
		}
	}
	return n
}

func (c *clause) matches(mediaType string) bool {
	first, second, _ := strings.Cut(mediaType, "/")
	return (c.kind == "*" || c.kind == first) && (c.subkind == "*" || c.subkind == second)
}

// form returns the form in a media type that the clause asks for.
func (c *clause) form(mediaType, kind string) (form, bool) {
	if !c.matches(mediaType) || c.quality == 0 {
		return form{}, false
	}
	as, group, version := c.parameters["as"], c.parameters["g"], c.parameters["v"]
	if mediaType == mediaText {
		return form{mediaType: mediaText}, as+group+version == ""
	}
	known := version == zVersion || version == zDeprecated
	return form{mediaType, version}, as == kind && group == zGroup && known
}
