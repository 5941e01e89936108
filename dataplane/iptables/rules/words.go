// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"iter"
	"slices"
	"strings"
)

// Words splits a rule into arguments for iptables, without quotes.
func Words(line string) []string {
	words := split(line)
	for i := range words {
		words[i] = Unquote(words[i])
	}
	return words
}

// TargetOf returns the target of a rule, or "" for a rule that only counts. Like CommentOf, it
// allocates nothing, because it runs once per rule of a whole table.
func TargetOf(line string) string {
	return argument(line, func(option string) bool { return option == optJump || option == optGoto })
}

// CommentOf returns the first comment of a rule, or "".
func CommentOf(line string) string {
	return argument(line, func(option string) bool { return option == optComment })
}

// argument returns the argument of the first wanted option. It skips the text of comments, which may
// look like an option.
func argument(line string, wanted func(option string) bool) string {
	option := ""
	for word := range printed(line) {
		switch {
		case option != "" && wanted(option):
			return Unquote(word)
		case option == optComment:
			option = ""
		default:
			option = word
		}
	}
	return ""
}

func split(line string) []string { return slices.Collect(printed(line)) }

// printed yields the words of a rule as they are printed. iptables-save prints arguments with
// spaces in double quotes, in which a backslash precedes a quote, an apostrophe or a backslash
// (xtables_save_string in libxtables/xtables.c).
func printed(line string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for line = strings.TrimLeft(line, " "); line != ""; line = strings.TrimLeft(line, " ") {
			end := wordEnd(line)
			if !yield(line[:end]) {
				return
			}
			line = line[end:]
		}
	}
}

// wordEnd returns the length of the first word.
func wordEnd(line string) int {
	at := 0
	if line[0] == '"' {
		for at = 1; at < len(line) && line[at] != '"'; at++ {
			if line[at] == '\\' {
				at++
			}
		}
		at = min(at+1, len(line)) // the closing quote may be missing
	}
	if blank := strings.IndexByte(line[at:], ' '); blank >= 0 {
		return at + blank
	}
	return len(line)
}

// Unquote returns the text of a word as printed. It allocates only for a word with a backslash.
func Unquote(word string) string {
	text, quoted := strings.CutPrefix(word, `"`)
	if !quoted {
		return word
	}
	if !strings.Contains(text, `\`) {
		text, _, _ = strings.Cut(text, `"`)
		return text
	}
	var b strings.Builder
	for i := 0; i < len(text) && text[i] != '"'; i++ {
		if text[i] == '\\' && i+1 < len(text) {
			i++
		}
		b.WriteByte(text[i])
	}
	return b.String()
}

// AppendQuoted appends a text, given in parts, as the programs print it: in quotes, unless it is
// plain.
func AppendQuoted(b []byte, parts ...string) []byte {
	start := len(b)
	isPlain := true
	for _, part := range parts {
		isPlain = isPlain && plain(part)
	}
	if isPlain {
		for _, part := range parts {
			b = append(b, part...)
		}
		if len(b) > start {
			return b
		}
	}
	b = append(b, '"')
	for _, part := range parts {
		for i := range len(part) {
			if c := part[i]; c == '"' || c == '\'' || c == '\\' {
				b = append(b, '\\')
			}
			b = append(b, part[i])
		}
	}
	return append(b, '"')
}

// plain reports whether the programs print a string without quotes (xtables_save_string in
// iptables 1.8.9).
func plain(s string) bool {
	for i := range len(s) {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_' {
			return false
		}
	}
	return true
}
