// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/sluice-proxy/sluice/examples"
)

// manifests is a directory of the sample manifests that the demo edits.
type manifests struct{ dir string }

func newManifests() (m manifests, err error) {
	if m.dir, err = os.MkdirTemp("", "sluice-demo-"); err != nil {
		return m, err
	}
	files, err := fs.Glob(examples.Demo, "demo/*.yaml")
	if err != nil {
		return m, err
	}
	for _, file := range files {
		text, err := examples.Demo.ReadFile(file)
		if err != nil {
			return m, err
		}
		if err := os.WriteFile(filepath.Join(m.dir, filepath.Base(file)), text, 0o600); err != nil {
			return m, err
		}
	}
	return m, nil
}

// replace replaces every occurrence in a file as editors do: with a new file, renamed over
// the old one.
func (m manifests) replace(file string, pairs ...string) error {
	path := filepath.Join(m.dir, file)
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	changed := strings.NewReplacer(pairs...).Replace(string(text))
	if changed == string(text) {
		return fmt.Errorf("%s: nothing to replace", path)
	}
	if err := os.WriteFile(path+".tmp~", []byte(changed), 0o600); err != nil {
		return err
	}
	return os.Rename(path+".tmp~", path)
}

func (m manifests) close() error { return os.RemoveAll(m.dir) }
