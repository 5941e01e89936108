package docs

import (
	"regexp"
	"strings"
	"testing"
)

// avoided are words with a more common term, which follows them; see CONTRIBUTING.md.
var avoided = map[string]string{
	"beside": "with, next to, compared with, during", "mend|mends|mended": "fix, repair", "anew|once more": "again",
	"likewise": "also", "the former|the latter": "the noun", "in trouble": "unhealthy", "what becomes of": "what happens to",
	"processor time": "CPU time", "folders?": "directory", "mistakes?": "error, bug", "weakness(?:es)?": "vulnerability",
	"clean-up|hand-over|look-up|take-over|roll-out|roll-back|fall-back": "one word (verb: two words)",
	"nobody|somebody|everybody":                                         "no one, or the passive", "at once": "immediately, at the same time",
	"of (?:its|their) own": "separate, dedicated", "whatever": "regardless of", "by itself": "automatically",
	"in force": "applied", "(?:colour|behaviour|honour|favour|catalogue|initialise|recognise|normalise|organise)\\w*": "American spelling",
}

// outsideProse are fences, code spans and the targets of links.
var outsideProse = regexp.MustCompile("(?s)```.*?```|`[^`]*`|\\]\\([^)]*\\)|<!--.*?-->")

// TestWords checks the pages for words to avoid. The changelog is not checked: it quotes names of the past.
func TestWords(t *testing.T) {
	var words []string
	for word := range avoided {
		words = append(words, word)
	}
	found := regexp.MustCompile(`(?i)\b(?:` + strings.Join(words, "|") + `)\b`)
	for _, page := range markdown(t) {
		if page == "../CHANGELOG.md" {
			continue
		}
		prose := strings.Join(strings.Fields(outsideProse.ReplaceAllString(read(t, page), " ")), " ")
		for _, hit := range found.FindAllString(prose, -1) {
			t.Errorf("%s: %q: write %s", page, hit, instead(hit))
		}
	}
}

// instead returns what to write for a word to avoid.
func instead(hit string) string {
	for word, better := range avoided {
		if regexp.MustCompile(`(?i)^(?:` + word + `)$`).MatchString(hit) {
			return better
		}
	}
	return ""
}
