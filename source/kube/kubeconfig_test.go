// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"os"
	"path/filepath"
	"testing"
)

// TestKubeconfig_Mistakes: each error of a kubeconfig names the file and the invalid field, and no Go type.
func TestKubeconfig_Mistakes(t *testing.T) {
	const head = "apiVersion: v1\nkind: Config\ncurrent-context: w\n"
	path := filepath.Join(t.TempDir(), "k")
	for text, want := range map[string]string{
		"clusters: 7\n":                  `clusters is a number; must be a list`,
		head + "contexts: [{name: y}]\n": `contexts.name is a bool; must be text; quote it if it looks like something else`,
		"a: [\n":                         `not a kubeconfig: yaml: line 1: did not find expected node content`,
		"apiVersion: v1\nkind: Pod\n":    `not a kubeconfig: must contain apiVersion: v1 and kind: Config`,
		"apiVersion: v1\nkind: Config\n": `no cluster configured: clusters, users, contexts and current-context are required`,
		head + "clusters: [{name: c}]\n": `context was not found for specified context: w; cluster has no server defined (to view it: kubectl config view --kubeconfig ` + path + `)`,
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		want = `kubeconfig "` + path + `": ` + want
		if _, err := RESTConfig(Config{Kubeconfig: path}); err == nil || err.Error() != want {
			t.Errorf("%q:\n%v, want\n%s", text, err, want)
		}
	}
}
