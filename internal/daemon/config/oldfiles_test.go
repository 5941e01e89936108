// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"strings"
	"testing"
)

// TestFile_OldFields: a file with the fields of kube-proxy before v1.23 and a duplicate key, as in guides that are
// still found, loads with a warning for each that names the line.
func TestFile_OldFields(t *testing.T) {
	const file = "testdata/old-fields.yaml"
	c, warnings := load(t, "--config", file)
	var got []string
	for _, w := range warnings {
		got = append(got, strings.TrimPrefix(w.String(), file))
	}
	want := []string{
		":13: conntrack.max: unknown field; it is ignored",
		":31: kind: already set on line 2; the last one counts",
		":37: resourceContainer: unknown field; it is ignored",
		":38: udpIdleTimeout: unknown field; it is ignored",
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("warnings\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if c.KubeProxy.ClusterCIDR != "10.244.0.0/16" {
		t.Errorf("clusterCIDR is %q", c.KubeProxy.ClusterCIDR)
	}
}
