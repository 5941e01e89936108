// SPDX-License-Identifier: Apache-2.0

package setup

import (
	"runtime/debug"
	"strings"

	"k8s.io/component-base/version"
)

// Compatible is the kube-proxy release whose behavior Sluice follows, and Release the
// patch release that it was compared with.
const (
	Compatible = "v1.37"
	Release    = Compatible + ".2"
)

// Revision returns the commit that the program was built from, as the toolchain or the Makefile
// recorded it; empty if neither did.
func Revision() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				return s.Value
			}
		}
	}
	if commit := version.Get().GitCommit; !strings.HasPrefix(commit, "$") { // as it is without the Makefile
		return commit
	}
	return ""
}
