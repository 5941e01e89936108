// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// rule is a recording rule or an alert.
type rule struct {
	Record      string            `json:"record,omitempty"`
	Alert       string            `json:"alert,omitempty"`
	Expr        string            `json:"expr"`
	For         string            `json:"for,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// rules returns all rules, and the rule file for a Prometheus.
func rules(t *testing.T) ([]rule, []byte) {
	t.Helper()
	var object struct {
		Spec struct {
			Groups []struct {
				Name     string `json:"name"`
				Interval string `json:"interval,omitempty"`
				Rules    []rule `json:"rules"`
			} `json:"groups"`
		} `json:"spec"`
	}
	if err := yaml.Unmarshal([]byte(read(t, "deploy/monitoring/prometheusrule.yaml")), &object); err != nil {
		t.Fatal(err)
	}
	var all []rule
	for _, group := range object.Spec.Groups {
		all = append(all, group.Rules...)
	}
	file, err := yaml.Marshal(object.Spec)
	if err != nil {
		t.Fatal(err)
	}
	return all, file
}

// TestAlertRules_Fire: Prometheus accepts the rules, and they fire when the tests in deploy/monitoring expect it.
func TestAlertRules_Fire(t *testing.T) {
	_, file := rules(t)
	dir := t.TempDir()
	write := func(name string, text []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, text, 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	t.Log(run(t, "promtool", "check", "rules", write("rules.yaml", file)))
	for _, name := range []string{"rules_test.yaml", "pools_test.yaml"} {
		tests := read(t, "deploy/monitoring/"+name)
		t.Log(run(t, "promtool", "test", "rules", write(name, []byte(tests))))
	}
}

var (
	alertTested = regexp.MustCompile(`alertname="(\w+)"`)
	heading     = regexp.MustCompile(`(?m)^## (Sluice\w+)$`)
)

// meaning returns how a runbook begins: the severity, and after how long the alert fires.
func meaning(r rule) string {
	severity := r.Labels["severity"]
	begin := "*" + strings.ToUpper(severity[:1]) + severity[1:]
	if r.For != "" {
		begin += ", after " + strings.Replace(r.For, "m", " min", 1)
	}
	return begin + ".*"
}

// TestAlertRules_TestedAndDocumented: a test expects each alert, and docs/runbooks.md has a section on it, to which the
// alert links.
func TestAlertRules_TestedAndDocumented(t *testing.T) {
	all, _ := rules(t)
	tested := matches(alertTested, read(t, "deploy/monitoring/rules_test.yaml"))
	documented := matches(heading, read(t, "docs/runbooks.md"))
	for _, r := range all {
		if r.Alert == "" {
			continue
		}
		if !slices.Contains(tested, r.Alert) {
			t.Errorf("%s: deploy/monitoring/rules_test.yaml has no test in which it fires", r.Alert)
		}
		at := slices.Index(documented, r.Alert)
		if at < 0 {
			t.Errorf("%s: docs/runbooks.md has no section ## %s", r.Alert, r.Alert)
			continue
		}
		documented = slices.Delete(documented, at, at+1)
		if meant := meaning(r); !strings.Contains(read(t, "docs/runbooks.md"), "## "+r.Alert+"\n\n"+meant) {
			t.Errorf("%s: its runbook does not begin with %q", r.Alert, meant)
		}
		if !slices.Contains([]string{"info", "warning", "critical"}, r.Labels["severity"]) {
			t.Errorf("%s: severity %q", r.Alert, r.Labels["severity"])
		}
		if r.Annotations["summary"] == "" || r.Annotations["description"] == "" || !runbook.MatchString(r.Annotations["runbook_url"]) {
			t.Errorf("%s: annotations %v", r.Alert, r.Annotations)
		}
	}
	if len(documented) > 0 {
		t.Errorf("docs/runbooks.md describes %v, which are no alerts", documented)
	}
}

var runbook = regexp.MustCompile(`/docs/runbooks\.md#sluice[a-z]+$`)

func matches(pattern *regexp.Regexp, text string) []string {
	var found []string
	for _, match := range pattern.FindAllStringSubmatch(text, -1) {
		found = append(found, match[1])
	}
	return found
}
