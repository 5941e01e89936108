package health

import (
	"mime"
	"strconv"
	"strings"
)

// prefersJSON tells whether a request's Accept header asks for JSON rather than
// for plain text, which is what it gets when it does not care (RFC 9110, 12.5.1).
func prefersJSON(accept string) bool {
	var json, text float64
	for _, part := range strings.Split(accept, ",") {
		kind, parameters, err := mime.ParseMediaType(part)
		if err != nil {
			continue
		}
		quality := 1.0
		if q, given := parameters["q"]; given {
			if quality, err = strconv.ParseFloat(q, 64); err != nil {
				continue
			}
		}
		switch kind {
		case "application/json", "application/*":
			json = max(json, quality)
		case "text/plain", "text/*":
			text = max(text, quality)
		}
	}
	return json > text
}
