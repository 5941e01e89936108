// SPDX-License-Identifier: Apache-2.0

package service

import "unicode/utf8"

// Ellipsis ends a text that was cut.
const Ellipsis = "…"

// QuoteMax is the longest value, in bytes before quoting, that a warning or a line of the log repeats.
// Values come from tenants, and may have megabytes.
const QuoteMax = 120

// Cut returns a text of at most limit bytes: the text, or its beginning and an ellipsis. It does not
// cut a character of UTF-8. The limit must be at least 3, the length of the ellipsis.
func Cut(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	end := limit - len(Ellipsis)
	for back := 0; back < utf8.UTFMax-1 && end > 0 && !utf8.RuneStart(text[end]); back++ {
		end--
	}
	return text[:end] + Ellipsis
}
