// SPDX-License-Identifier: Apache-2.0

package process

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// ConfigMap is a directory such as a kubelet mounts for a ConfigMap: each file is a link through the
// link "..data" to a directory that holds one version, and a new version comes into force as a whole,
// when "..data" is replaced. The file that a process reads is thus never written to.
type ConfigMap struct {
	dir     string
	key     string // the name of the one file
	version int    // the number of the folder that "..data" leads to; 0 before the first
}

// NewConfigMap makes one with a file of this name, in an empty or missing directory.
func NewConfigMap(dir, key string) *ConfigMap { return &ConfigMap{dir: dir, key: key} }

// Path returns where a process finds the file.
func (m *ConfigMap) Path() string { return filepath.Join(m.dir, m.key) }

// Set replaces the content, as the kubelet does.
func (m *ConfigMap) Set(text string) error {
	if err := m.set(text); err != nil {
		return fmt.Errorf("ConfigMap at %s: %w", m.dir, err)
	}
	return nil
}

func (m *ConfigMap) set(text string) error {
	next := ".." + strconv.Itoa(m.version+1)
	if err := os.MkdirAll(filepath.Join(m.dir, next), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(m.dir, next, m.key), []byte(text), 0o644); err != nil {
		return err
	}
	data := filepath.Join(m.dir, "..data")
	if err := errors.Join(os.Symlink(next, data+"_tmp"), os.Rename(data+"_tmp", data)); err != nil {
		return err
	}
	m.version++
	if m.version == 1 {
		return os.Symlink(filepath.Join("..data", m.key), m.Path())
	}
	return os.RemoveAll(filepath.Join(m.dir, ".."+strconv.Itoa(m.version-1)))
}
