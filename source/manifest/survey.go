// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sluice-proxy/sluice/source/reduce"
)

// Overview is what is in a directory of manifests, for a reader who may have named the wrong
// one.
type Overview struct {
	// Files counts the manifests. Folders are the names of the subdirectories that contain
	// manifests, which Sluice does not read.
	Files   int
	Folders []string
	// Services counts the Services; Nodes are the names of the Nodes. Rejected files do not
	// count.
	Services int
	Nodes    []string
}

// Survey looks at a directory once.
func Survey(dir string) (Overview, error) {
	var found Overview
	files := newScanner(dir, reduce.Policy{})
	if err := files.scan(nil); err != nil {
		return found, err
	}
	found.Files = len(files.files)
	for _, f := range files.files {
		for _, o := range f.objects {
			switch o.id.kind {
			case kindService:
				found.Services++
			case kindNode:
				found.Nodes = append(found.Nodes, o.id.name)
			}
		}
	}
	slices.Sort(found.Nodes)
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if e.IsDir() && !strings.HasPrefix(e.Name(), ".") && holdsManifests(filepath.Join(dir, e.Name())) {
			found.Folders = append(found.Folders, e.Name())
		}
	}
	return found, err
}

func holdsManifests(dir string) bool {
	entries, err := os.ReadDir(dir) // one that cannot be read holds none for us
	return err == nil && slices.ContainsFunc(entries, func(e os.DirEntry) bool { return manifestName(e.Name()) })
}
