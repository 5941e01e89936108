package config

import (
	"reflect"
	"strings"
)

// likely suggests what an unknown field was meant to be: a field of the same object whose name
// resembles it, or one of the same name elsewhere in the document.
func likely(name, path string, fields []field, document reflect.Type) string {
	best, distance := "", max(1, len(name)/3)+1
	for _, f := range fields {
		if d := editDistance(strings.ToLower(name), strings.ToLower(f.name)); d < distance {
			best, distance = f.name, d
		}
	}
	if best == "" {
		best = elsewhere(name, path, document)
	}
	if best == "" {
		return ""
	}
	return "; did you mean " + best + "?"
}

// elsewhere returns the path of the only field of a document with this name; empty without one.
func elsewhere(name, path string, document reflect.Type) string {
	found := ""
	for _, leaf := range leavesOf(document) {
		if last := leaf[strings.LastIndexByte(leaf, '.')+1:]; !strings.EqualFold(last, name) || leaf == path {
			continue
		}
		if found != "" {
			return ""
		}
		found = leaf
	}
	return found
}

// editDistance returns how many bytes have to be inserted, deleted or replaced to turn one text into
// the other (Levenshtein).
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replace := diagonal
			if a[i] != b[j] {
				replace++
			}
			diagonal = row[j+1]
			row[j+1] = min(replace, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}
