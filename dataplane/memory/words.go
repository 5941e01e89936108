package memory

import (
	"strings"
)

// split cuts a line into words as iptables-restore does: at blanks, except
// inside double quotes, where a backslash takes the next character literally.
func split(line string) ([]string, error) {
	var words []string
	var word strings.Builder
	inWord, quoted, escaped := false, false, false
	for _, c := range []byte(line) {
		switch {
		case escaped:
			word.WriteByte(c)
			escaped = false
		case quoted && c == '\\':
			escaped = true
		case c == '"':
			quoted, inWord = !quoted, true
		case !quoted && (c == ' ' || c == '\t'):
			if inWord {
				words = append(words, word.String())
				word.Reset()
				inWord = false
			}
		default:
			word.WriteByte(c)
			inWord = true
		}
	}
	if quoted {
		return nil, refusef("unclosed quote in %q", line)
	}
	if inWord {
		words = append(words, word.String())
	}
	return words, nil
}

// bare are the characters that iptables-save leaves without quotes.
const bare = "_-0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

// quote prints a word as xtables_save_string of iptables 1.8 does.
func quote(word string) string {
	if word != "" && strings.Trim(word, bare) == "" {
		return word
	}
	return `"` + strings.NewReplacer(`"`, `\"`, `\`, `\\`, `'`, `\'`).Replace(word) + `"`
}
