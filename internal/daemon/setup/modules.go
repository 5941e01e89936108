// SPDX-License-Identifier: Apache-2.0

package setup

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
)

// states describes modules of the kernel. It loads none.
func states(names ...string) string {
	folder := "/lib/modules/" + KernelRelease()
	var parts []string
	for _, name := range names {
		parts = append(parts, name+": "+moduleState(name, "/sys/module", folder))
	}
	text := "modules " + strings.Join(parts, ", ")
	if _, err := os.Stat(folder); err != nil {
		text += "; " + folder + " is not there to look for more"
	}
	return text
}

// moduleState reports whether the kernel has a module, or could load it. The directory loaded contains the loaded
// modules, and those built-in ones that have parameters; installed contains lists of all.
func moduleState(name, loaded, installed string) string {
	if _, err := os.Stat(filepath.Join(loaded, name)); err == nil {
		return "present"
	}
	lists := []struct{ file, state string }{
		{"modules.builtin", "built in"}, {"modules.dep", "can be loaded"},
	}
	for _, list := range lists {
		text, err := os.ReadFile(filepath.Join(installed, list.file))
		if err == nil && bytes.Contains(text, []byte("/"+name+".ko")) {
			return list.state
		}
	}
	return "not loaded"
}
