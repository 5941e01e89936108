package web

import (
	"cmp"
	"mime"
	"slices"
	"strconv"
	"strings"
)

const (
	mediaText = "text/plain"
	mediaJSON = "application/json"
	mediaYAML = "application/yaml"
)

// form is how a zpage is to be written; the version is empty for text.
type form struct {
	mediaType, version string
}

// clause is one part of an Accept header.
type clause struct {
	kind, subkind string
	parameters    map[string]string
	quality       float64
}

// negotiate chooses a form by an Accept header (RFC 9110, section 12.5.1). As
// Kubernetes has it, an object is given to those only who name its kind, group and
// version; a header that accepts everything gets the text.
func negotiate(header, kind string) (form, bool) {
	if strings.TrimSpace(header) == "" {
		return form{mediaType: mediaText}, true
	}
	for _, c := range parseAccept(header) {
		for _, mediaType := range []string{mediaJSON, mediaYAML, mediaText} {
			if f, ok := c.form(mediaType, kind); ok {
				return f, true
			}
		}
	}
	return form{}, false
}

// form gives the form in a media type that the clause asks for.
func (c *clause) form(mediaType, kind string) (form, bool) {
	first, second, _ := strings.Cut(mediaType, "/")
	if (c.kind != "*" && c.kind != first) || (c.subkind != "*" && c.subkind != second) || c.quality == 0 {
		return form{}, false
	}
	as, group, version := c.parameters["as"], c.parameters["g"], c.parameters["v"]
	if mediaType == mediaText {
		return form{mediaType: mediaText}, as+group+version == ""
	}
	known := version == zVersion || version == zDeprecated
	return form{mediaType, version}, as == kind && group == zGroup && known
}

// parseAccept gives the clauses, the preferred ones first. What cannot be read is
// left out.
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
			if c.quality, err = strconv.ParseFloat(q, 64); err != nil {
				continue
			}
		}
		clauses = append(clauses, c)
	}
	slices.SortStableFunc(clauses, func(a, b clause) int {
		return cmp.Or(cmp.Compare(b.quality, a.quality), cmp.Compare(a.stars(), b.stars()))
	})
	return clauses
}

// stars tells how much a clause leaves open.
func (c *clause) stars() (n int) {
	for _, part := range []string{c.kind, c.subkind} {
		if part == "*" {
			n++
		}
	}
	return n
}
