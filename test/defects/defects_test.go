// SPDX-License-Identifier: Apache-2.0

package defects

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestOverlay(t *testing.T) {
	top := t.TempDir()
	if err := os.WriteFile(filepath.Join(top, "a.go"), []byte("one two three"), 0o600); err != nil {
		t.Fatal(err)
	}
	overlay, err := Overlay(top, t.TempDir(), Edit{"a.go", "one", "1"}, Edit{"a.go", "three", "3"})
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(overlay)
	if err != nil {
		t.Fatal(err)
	}
	var read struct{ Replace map[string]string }
	if err := json.Unmarshal(b, &read); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(read.Replace[filepath.Join(top, "a.go")])
	if err != nil || string(text) != "1 two 3" {
		t.Errorf("%q, %v", text, err)
	}
	for _, old := range []string{"four", "e"} { // gone, and ambiguous
		if _, err := Overlay(top, t.TempDir(), Edit{"a.go", old, ""}); err == nil || !strings.Contains(err.Error(), "a.go has") {
			t.Errorf("%q: %v", old, err)
		}
	}
}
