// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

// targets are the labels that the ServiceMonitor and Prometheus give to every series.
var targets = []string{"job", "instance", "node", "pool", "metrics_path"}

// catalogue returns the labels of each metric that a query may ask for.
func catalogue(t *testing.T) map[string][]string {
	t.Helper()
	all := map[string][]string{
		"up":                         nil,
		"rest_client_requests_total": {"code", "method", "host"}, // of client-go
	}
	for _, file := range []string{"sluice.txt", "parts.txt", "kubeproxy.txt", "process.txt"} {
		for line := range strings.Lines(read(t, "observe/metrics/testdata/"+file)) {
			words := strings.Fields(line)
			if columns := strings.Split(strings.TrimSpace(line), " | "); len(columns) > 2 {
				words = append(columns[:2], strings.Fields(columns[2])...)
			} else if file != "process.txt" {
				continue
			}
			if len(words) < 2 || words[0] == "#" {
				continue
			}
			all[words[0]] = words[2:]
			if words[1] == "histogram" {
				all[words[0]+"_bucket"] = append(slices.Clone(words[2:]), "le")
				all[words[0]+"_count"], all[words[0]+"_sum"] = words[2:], words[2:]
			}
		}
	}
	for _, name := range matches(regexp.MustCompile("(?m)^\\| `(sluice_service_\\w+)` \\|"), read(t, "docs/metrics.md")) {
		all[name] = []string{"namespace", "name", "reason", "domain", "ip_family", "kind", "state", "direction", "endpoint"}
	}
	recorded, _ := rules(t)
	for _, r := range recorded {
		if r.Record != "" {
			all[r.Record] = slices.Collect(maps.Keys(grouped(t, r.Expr)))
		}
	}
	return all
}

// parse reads a query, with the variables of the dashboard set.
func parse(t *testing.T, query string) parser.Expr {
	t.Helper()
	for _, name := range []string{"$pool", "$node"} {
		query = strings.ReplaceAll(query, name, ".*")
	}
	expr, err := parser.ParseExpr(query)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return expr
}

// grouped returns the labels by which a query aggregates.
func grouped(t *testing.T, query string) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	parser.Inspect(parse(t, query), func(node parser.Node, _ []parser.Node) error {
		if a, ok := node.(*parser.AggregateExpr); ok && !a.Without {
			for _, label := range a.Grouping {
				found[label] = true
			}
		}
		return nil
	})
	return found
}

// dashboardQueries returns every query of the dashboard.
func dashboardQueries(t *testing.T) []string {
	t.Helper()
	var dashboard struct {
		Panels []struct {
			Type, Title string
			Targets     []struct{ Expr string }
		}
	}
	if err := json.Unmarshal([]byte(read(t, "deploy/monitoring/dashboard.json")), &dashboard); err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, panel := range dashboard.Panels {
		if panel.Type != "row" && len(panel.Targets) == 0 {
			t.Errorf("panel %q asks nothing", panel.Title)
		}
		for _, target := range panel.Targets {
			all = append(all, target.Expr)
		}
	}
	return all
}

var docsQuery = regexp.MustCompile("(?s)```promql\n(.*?)```")

// docsQueries returns the queries of the pages for operators.
func docsQueries(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, page := range []string{"docs/monitoring.md", "docs/upgrade.md"} {
		found := matches(docsQuery, read(t, page))
		if len(found) == 0 {
			t.Errorf("%s has no query", page)
		}
		all = append(all, found...)
	}
	return all
}

// TestQueries_MetricsAreExported: each query of a rule, the dashboard or a page uses only metrics and labels that
// exist.
func TestQueries_MetricsAreExported(t *testing.T) {
	known := catalogue(t)
	queries := append(dashboardQueries(t), docsQueries(t)...)
	all, _ := rules(t)
	for _, r := range all {
		queries = append(queries, r.Expr)
	}
	kinds := matches(regexp.MustCompile("(?m)^\\| `([a-z-]+)` \\|"), read(t, "docs/health.md"))
	for _, query := range queries {
		have := map[string]bool{}
		parser.Inspect(parse(t, query), func(node parser.Node, _ []parser.Node) error {
			if call, ok := node.(*parser.Call); ok && call.Func.Name == "label_replace" {
				have[call.Args[1].(*parser.StringLiteral).Val] = true
			}
			selector, ok := node.(*parser.VectorSelector)
			if !ok {
				return nil
			}
			own, exists := known[selector.Name]
			if !exists {
				t.Errorf("%s: Sluice exports no %s", query, selector.Name)
			}
			for _, label := range append(slices.Clone(targets), own...) {
				have[label] = true
			}
			for _, m := range selector.LabelMatchers {
				if m.Name != labels.MetricName && !slices.Contains(targets, m.Name) && !slices.Contains(own, m.Name) {
					t.Errorf("%s: %s has no label %s", query, selector.Name, m.Name)
				}
				if m.Name == "finding" {
					for kind := range strings.SplitSeq(m.Value, "|") {
						if !slices.Contains(kinds, kind) {
							t.Errorf("%s: docs/health.md has no finding %s", query, kind)
						}
					}
				}
			}
			return nil
		})
		for label := range grouped(t, query) {
			if !have[label] {
				t.Errorf("%s: groups by %s, which no series has", query, label)
			}
		}
	}
	t.Logf("%d queries", len(queries))
}
