// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/sluice-proxy/sluice/test/doctest"
)

// foreign are objects that kubeadm makes, or that a page makes by a command.
var foreign = map[string]bool{"kube-proxy": true, "kubeadm-config": true, "sluice-canary": true, "sluice-metrics-ca": true}

var (
	target   = regexp.MustCompile(`(?m)(?:^|&& |` + "`" + `)make ([a-z][a-z0-9-]*)`)
	deployed = regexp.MustCompile(`\bdeploy/[\w./-]*\w`)
	object   = regexp.MustCompile(`\b(?:daemonset|configmap)[ /]([a-z][a-z-]*)`)
	label    = regexp.MustCompile(`\b((?:sluice\.dev|app\.kubernetes\.io)/[a-z-]+)([=!-])([a-z-]*)`)
	metric   = regexp.MustCompile(`\b((?:sluice|kubeproxy)_[a-z0-9_]+)`)
	recorded = regexp.MustCompile(`\b(sluice:[a-z0-9_]+:[a-z0-9_]+)`)
)

// TestCommands_NamesExist checks that the make targets, the files and the objects that commands on the pages name
// exist, also in commands that no test can run.
func TestCommands_NamesExist(t *testing.T) {
	makefile, manifests, seen := "", deploy(t), 0
	for _, folder := range []string{"..", "../test", "../bench", "../hack"} {
		makefile += read(t, folder+"/Makefile")
	}
	for _, page := range markdown(t) {
		if page == "../CHANGELOG.md" { // what a former release had
			continue
		}
		for _, m := range target.FindAllStringSubmatch(read(t, page), -1) {
			if seen++; !strings.Contains(makefile, "\n"+m[1]+":") {
				t.Errorf("%s: the Makefile has no target %s", page, m[1])
			}
		}
		commands, err := doctest.Parse(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range commands {
			complain := func(format string, args ...any) {
				t.Helper()
				t.Errorf("%s:%d: "+format, append([]any{page, c.Line}, args...)...)
			}
			for _, name := range deployed.FindAllString(c.Text, -1) {
				seen++
				if _, err := os.Stat(filepath.Join("..", name)); err != nil {
					complain("%v", err)
				}
			}
			for _, m := range object.FindAllStringSubmatch(c.Text, -1) {
				if seen++; !foreign[m[1]] && !strings.Contains(manifests, "name: "+m[1]+"\n") {
					complain("deploy/ has no object %s", m[1])
				}
			}
			for _, m := range label.FindAllStringSubmatch(c.Text, -1) {
				if seen++; !strings.Contains(manifests, m[1]) {
					complain("deploy/ has no label %s", m[1])
				} else if m[3] != "" && !regexp.MustCompile(`[ \[]`+m[3]+`[\n\],}]`).MatchString(manifests) {
					complain("deploy/ has no value %s of the label %s", m[3], m[1])
				}
			}
		}
	}
	if seen < 50 {
		t.Errorf("%d names: the search for them is broken", seen)
	}
}

// TestPages_NamedMetricsExist checks that the metrics and recorded series that each page names exist.
// TestMetrics_Reference checks that metrics.md is complete.
func TestPages_NamedMetricsExist(t *testing.T) {
	known, rules, seen := map[string]bool{}, deploy(t), 0
	for _, m := range regexp.MustCompile("(?m)^\\| `(\\w+)`").FindAllStringSubmatch(read(t, "metrics.md"), -1) {
		known[m[1]] = true
	}
	for _, page := range markdown(t) {
		text := read(t, page)
		for _, m := range metric.FindAllStringSubmatch(text, -1) {
			name := strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(m[1], "_bucket"), "_count"), "_sum")
			if seen++; !known[name] && !strings.HasSuffix(name, "_") {
				t.Errorf("%s: no metric %s", page, m[1])
			}
		}
		for _, m := range recorded.FindAllStringSubmatch(text, -1) {
			if seen++; !strings.Contains(rules, m[1]) {
				t.Errorf("%s: no recording rule %s", page, m[1])
			}
		}
	}
	if seen < 100 {
		t.Errorf("%d metrics: the search for them is broken", seen)
	}
}

// deploy returns the manifests.
func deploy(t *testing.T) string {
	t.Helper()
	files, err := filepath.Glob("../deploy/*/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal("no manifests", err)
	}
	var all strings.Builder
	for _, file := range files {
		all.WriteString(read(t, file))
	}
	return all.String()
}
