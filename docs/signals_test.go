// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/sluice-proxy/sluice/internal/daemon/logging"
	"github.com/sluice-proxy/sluice/observe/events"
	"github.com/sluice-proxy/sluice/observe/health"
	"github.com/sluice-proxy/sluice/test/doctest"
)

// TestSignals_Reference compares the index of signals.md with the alerts, events, findings and messages, and the
// tables of monitoring.md, logs.md and health.md with their alerts, events and findings.
func TestSignals_Reference(t *testing.T) {
	var rows [][]string
	all := alerts(t)
	for _, a := range all {
		rows = append(rows, []string{a[0], a[1] + " alert", a[4]})
	}
	doctest.Generated(t, "monitoring.md", "alerts", doctest.Table([]string{"Alert", "Severity", "Condition", "For", "Meaning"}, all))
	var described [][]string
	for _, e := range events.Reasons {
		described = append(described, []string{"`" + e.Name + "`", e.About, e.Meaning})
		rows = append(rows, []string{"[`" + e.Name + "`](logs.md#events)", "event", e.Meaning})
	}
	doctest.Generated(t, "logs.md", "events", doctest.Table([]string{"Reason", "About", "Meaning"}, described))
	var findings [][]string
	for _, kind := range health.Kinds() {
		findings = append(findings, []string{"`" + kind + "`", health.Meaning(kind), health.Advice(kind)})
		rows = append(rows, []string{"[`" + kind + "`](health.md#findings-and-remedies)", "finding", health.Meaning(kind)})
	}
	doctest.Generated(t, "health.md", "findings", doctest.Table([]string{"Kind", "Meaning", "Remedy"}, findings))
	for message, id := range logging.Messages() {
		rows = append(rows, []string{"[`" + id + "`](logs.md#messages-that-require-action)", "log", message})
	}
	slices.SortFunc(rows, func(a, b []string) int {
		return cmp.Or(cmp.Compare(strings.ToLower(a[0]), strings.ToLower(b[0])), cmp.Compare(a[1], b[1]), cmp.Compare(a[2], b[2]))
	})
	doctest.Generated(t, "signals.md", "index", doctest.Table([]string{"Signal", "Kind", "Meaning"}, rows))
}

// findingsOf are the findings that an expression selects.
var findingsOf = regexp.MustCompile(`finding=~?"([^"]+)"`)

// condition returns when an alert fires: with findings, or by its expression.
func condition(expr string) string {
	if found := findingsOf.FindStringSubmatch(expr); found != nil {
		return "finding `" + strings.ReplaceAll(found[1], "|", "`, `") + "`"
	}
	return "`" + strings.Join(strings.Fields(expr), " ") + "`"
}

var placeholder = regexp.MustCompile(`{{ \$labels\.(\w+) }}|{{ [^}]*}}`)

// alerts returns a row for each alert: name, severity, condition, how long that lasts, and the summary with capitals in
// place of its values.
func alerts(t *testing.T) (rows [][]string) {
	var object struct {
		Spec struct {
			Groups []struct {
				Rules []struct {
					Alert       string            `json:"alert"`
					Expr        string            `json:"expr"`
					For         string            `json:"for"`
					Labels      map[string]string `json:"labels"`
					Annotations map[string]string `json:"annotations"`
				} `json:"rules"`
			} `json:"groups"`
		} `json:"spec"`
	}
	if err := yaml.Unmarshal([]byte(read(t, "../deploy/monitoring/prometheusrule.yaml")), &object); err != nil {
		t.Fatal(err)
	}
	for _, group := range object.Spec.Groups {
		for _, rule := range group.Rules {
			if rule.Alert == "" {
				continue
			}
			summary := placeholder.ReplaceAllStringFunc(rule.Annotations["summary"], func(found string) string {
				if label := placeholder.FindStringSubmatch(found)[1]; label != "" {
					return strings.ToUpper(label)
				}
				return "N"
			})
			rows = append(rows, []string{
				"[`" + rule.Alert + "`](runbooks.md#" + strings.ToLower(rule.Alert) + ")", rule.Labels["severity"],
				condition(rule.Expr), rule.For, summary,
			})
		}
	}
	if len(rows) < 10 {
		t.Fatalf("%d alerts: want all", len(rows))
	}
	return rows
}
