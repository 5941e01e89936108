// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-proxy/sluice/internal/daemon/setup"
	"github.com/sluice-proxy/sluice/source/manifest"
)

// ManifestNotes returns a line for each oddity of a directory of manifests: a user may have named the wrong directory,
// or the wrong node. The options must be loaded.
func ManifestNotes(o *setup.Options, dir string) []string {
	found, err := manifest.Survey(dir)
	name, nameErr := o.NodeName()
	if err != nil || nameErr != nil {
		return nil // the reader of the manifests reports the error
	}
	switch {
	case found.Files == 0 && len(found.Folders) > 0:
		return []string{fmt.Sprintf("%s contains no manifests itself, and subdirectories are not read; name one of them: --manifests %s/%s",
			dir, strings.TrimRight(dir, "/"), strings.Join(found.Folders, ", "))}
	case found.Files == 0:
		return []string{fmt.Sprintf("%s contains no manifests (*.yaml, *.yml, *.json), so there is nothing to serve; put some there", dir)}
	}
	var notes []string
	if found.Services == 0 {
		notes = append(notes, fmt.Sprintf("the manifests in %s contain no Service, so there is nothing to serve", dir))
	}
	if !slices.Contains(found.Nodes, name) {
		notes = append(notes, noNode(name, found.Nodes))
	}
	return notes
}

// OnlyNode returns the name of the only Node in a directory of manifests, or nothing.
func OnlyNode(dir string) string {
	if found, err := manifest.Survey(dir); err == nil && len(found.Nodes) == 1 {
		return found.Nodes[0]
	}
	return ""
}

// noNode describes the effect if no manifest describes this node.
func noNode(name string, others []string) string {
	effect := fmt.Sprintf("no manifest describes the node %q, so no endpoint is local to it, and its zone and addresses are unknown; ", name)
	if len(others) == 0 {
		return effect + "add a Node to the manifests"
	}
	return effect + "valid with these manifests: --hostname-override " + strings.Join(others, ", ")
}
