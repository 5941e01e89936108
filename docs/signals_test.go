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
	rows := alerts(t)
	doctest.Generated(t, "monitoring.md", "alerts", doctest.Table([]string{"Alert", "Kind", "Meaning"}, rows))
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

var placeholder = regexp.MustCompile(`{{ \$labels\.(\w+) }}|{{ [^}]*}}`)

// alerts returns a row for each alert, with capitals in place of the values in its summary.
func alerts(t *testing.T) (rows [][]string) {
	var object struct {
		Spec struct {
			Groups []struct {
				Rules []struct {
					Alert       string            `json:"alert"`
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
				"[`" + rule.Alert + "`](runbooks.md#" + strings.ToLower(rule.Alert) + ")", rule.Labels["severity"] + " alert", summary,
			})
		}
	}
	if len(rows) < 10 {
		t.Fatalf("%d alerts: want all", len(rows))
	}
	return rows
}
