// SPDX-License-Identifier: Apache-2.0

package config

import (
	"testing"

	"github.com/spf13/pflag"
)

// TestGroups: every flag that is not deprecated is below exactly one heading.
func TestGroups(t *testing.T) {
	set := pflag.NewFlagSet("proxy", pflag.ContinueOnError)
	BindProxy(set)
	seen := map[string]string{}
	for _, group := range Groups(set) {
		group.Flags.VisitAll(func(f *pflag.Flag) {
			if before := seen[f.Name]; before != "" {
				t.Errorf("--%s is below %q and %q", f.Name, before, group.Title)
			}
			seen[f.Name] = group.Title
			if group.Title == otherFlags && f.Deprecated == "" {
				t.Errorf("--%s has no heading; give it one in groups.go", f.Name)
			}
		})
	}
	set.VisitAll(func(f *pflag.Flag) {
		if seen[f.Name] == "" && f.Deprecated == "" {
			t.Errorf("--%s is missing", f.Name)
		}
	})
}
