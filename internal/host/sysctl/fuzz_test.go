// SPDX-License-Identifier: Apache-2.0

package sysctl

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// FuzzRecord: with any text as the record in the state directory, a cleanup writes only existing kernel settings, and
// no other file.
func FuzzRecord(f *testing.F) {
	f.Add([]byte(`{"proc/sys/net/a": {"found": "1", "set": "2"}}`))
	f.Add([]byte(`{"proc/sys/../../etc/passwd": {"found": "root::0:0", "set": "x"}, "/proc/sys/net/a": {"set": "2"}}`))
	f.Add([]byte(`{"sys/module/../../etc/passwd": {"found": "1", "set": "x"}, "proc/sys/": {}, "": {}}`))
	f.Add([]byte(`null`))
	f.Add([]byte(`{"proc/sys/net/a": null, "proc/sys/net/none": {"found": "7"}`))
	root := f.TempDir()
	files := map[string]string{"proc/sys/net/a": "2", "sys/module/m/parameters/p": "2", "etc/passwd": "x"}
	f.Fuzz(func(t *testing.T, text []byte) {
		for name, content := range files {
			write(t, filepath.Join(root, name), content)
		}
		dir := t.TempDir()
		write(t, filepath.Join(dir, recordFile), string(text))
		record := NewRecord(dir, func(error) {})
		done, err := Files{Root: root, Record: record}.Restore()
		if err != nil && !strings.Contains(err.Error(), "sysctl record") && !strings.Contains(err.Error(), root) {
			t.Errorf("the error names nothing: %v", err)
		}
		if !json.Valid(text) && (err == nil || done != nil) {
			t.Errorf("%q restores %v, %v", text, done, err)
		}
		changed := 0
		_ = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			name, _ := filepath.Rel(root, path)
			now, _ := os.ReadFile(path)
			before, known := files[name]
			if !known || name == "etc/passwd" && string(now) != before {
				t.Errorf("%s was written", name)
			}
			if string(now) != before {
				changed++
			}
			return nil
		})
		if changed > len(done) {
			t.Errorf("%d settings changed, %v were told", changed, done)
		}
	})
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}
