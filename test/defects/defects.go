// Package defects plants defects into builds, for the checks that have to notice
// them. The tree stays as it is: the compiler gets other texts for some files.
package defects

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Edit replaces the text Old, which occurs once in a file of the tree.
type Edit struct {
	File, Old, New string
}

// Overlay writes what `go build -overlay` needs into a directory, and returns the file to name
// there. Top is the top of the tree. It is an error if the code no longer has a text: the defect
// has to follow it.
func Overlay(top, dir string, edits ...Edit) (string, error) {
	texts := map[string]string{}
	for _, e := range edits {
		file := filepath.Join(top, e.File)
		if _, read := texts[file]; !read {
			b, err := os.ReadFile(file)
			if err != nil {
				return "", err
			}
			texts[file] = string(b)
		}
		if n := strings.Count(texts[file], e.Old); n != 1 {
			return "", fmt.Errorf("%s has %q %d times, want once: the defect has to follow the code", e.File, e.Old, n)
		}
		texts[file] = strings.Replace(texts[file], e.Old, e.New, 1)
	}
	replace := map[string]string{}
	for file, text := range texts {
		changed := filepath.Join(dir, fmt.Sprintf("changed%d.go", len(replace)))
		if err := os.WriteFile(changed, []byte(text), 0o600); err != nil {
			return "", err
		}
		replace[file] = changed
	}
	b, err := json.Marshal(map[string]map[string]string{"Replace": replace})
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(dir, "overlay.json")
	return overlay, os.WriteFile(overlay, b, 0o600)
}
