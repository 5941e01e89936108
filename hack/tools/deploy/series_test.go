// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/relabel"
	"github.com/prometheus/prometheus/promql/parser"
	"sigs.k8s.io/yaml"
)

const (
	// seriesMax is the number of series that Prometheus stores of one node.
	seriesMax = 250
	// restSeries is the number of series of client-go, which a proxy without a cluster does not have: two
	// methods, one host, and a few codes.
	restSeries = 12
	// topSeries is the number of series from /metrics/services?top=10.
	topSeries = 30
)

// kept returns a function that reports whether the first endpoint of the ServiceMonitor keeps a series.
func kept(t *testing.T) func(labels.Labels) bool {
	t.Helper()
	var object struct {
		Spec struct {
			Endpoints []struct {
				MetricRelabelings []struct {
					SourceLabels []string `json:"sourceLabels"`
					Regex        string   `json:"regex"`
					Action       string   `json:"action"`
				} `json:"metricRelabelings"`
			} `json:"endpoints"`
		} `json:"spec"`
	}
	if err := yaml.Unmarshal([]byte(read(t, "deploy/monitoring/servicemonitor.yaml")), &object); err != nil {
		t.Fatal(err)
	}
	var all []*relabel.Config
	for _, r := range object.Spec.Endpoints[0].MetricRelabelings {
		config := relabel.DefaultRelabelConfig
		for _, name := range r.SourceLabels {
			config.SourceLabels = append(config.SourceLabels, model.LabelName(name))
		}
		config.Regex, config.Action = relabel.MustNewRegexp(r.Regex), relabel.Action(r.Action)
		all = append(all, &config)
	}
	return func(series labels.Labels) bool {
		_, keep := relabel.Process(series, all...)
		return keep
	}
}

// TestServiceMonitor_KeepsFewSeries: the ServiceMonitor keeps the metrics of all queries, and few series of a real
// process.
func TestServiceMonitor_KeepsFewSeries(t *testing.T) {
	keep := kept(t)
	names, total := map[string]bool{}, 0
	for line := range strings.Lines(scrape(t)) {
		text, _, _ := strings.Cut(line, " ")
		if strings.HasPrefix(line, "#") || text == "" {
			continue
		}
		if at := strings.LastIndex(line, "}"); at >= 0 {
			text = line[:at+1]
		}
		series, err := parser.ParseMetric(strings.TrimSpace(text))
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if keep(series) {
			names[series.Get(labels.MetricName)] = true
			total++
		}
	}
	if total += restSeries + topSeries; total > seriesMax {
		t.Errorf("Prometheus stores %d series of a node, want at most %d", total, seriesMax)
	}
	t.Logf("Prometheus stores about %d series of a node", total)
	all, _ := rules(t)
	queries := dashboardQueries(t)
	for _, r := range all {
		queries = append(queries, r.Expr)
	}
	for _, query := range queries {
		parser.Inspect(parse(t, query), func(node parser.Node, _ []parser.Node) error {
			selector, ok := node.(*parser.VectorSelector)
			if ok && strings.HasPrefix(selector.Name, "sluice_") && !strings.HasPrefix(selector.Name, "sluice_service_") && !names[selector.Name] {
				t.Errorf("%s: the ServiceMonitor does not keep %s", query, selector.Name)
			}
			return nil
		})
	}
}

// scrape returns the metrics of a real process in a sandbox.
func scrape(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	sluice, archive := filepath.Join(dir, "sluice"), filepath.Join(dir, "dump.tar.gz")
	run(t, "go", "-C", top, "build", "-o", sluice, "./cmd/sluice")
	cmd := exec.Command(sluice, "run", filepath.Join(top, "examples/web"), "--sandbox")
	cmd.Stdout, cmd.Stderr = t.Output(), t.Output()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // if it still runs
		_ = cmd.Wait()
	})
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(200 * time.Millisecond) {
		printed, err := exec.Command(sluice, "dump", "--file", archive).CombinedOutput()
		if err == nil {
			// The first self-test ends 5 s after the start.
			if text := metricsIn(t, archive); strings.Contains(text, "sluice_selftest_duration_seconds{") {
				return text
			}
			if err := os.Remove(archive); err != nil {
				t.Fatal(err)
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("sluice dump: %v\n%s", err, printed)
		}
	}
}

// metricsIn returns the metrics in an archive of sluice dump.
func metricsIn(t *testing.T, archive string) string {
	t.Helper()
	file, err := os.Open(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close() // only read
	unzipped, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	for files := tar.NewReader(unzipped); ; {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			t.Fatal("the archive contains no metrics")
		}
		if err != nil {
			t.Fatal(err)
		}
		if filepath.Base(header.Name) == "metrics.txt" {
			text, err := io.ReadAll(files)
			if err != nil {
				t.Fatal(err)
			}
			return string(text)
		}
	}
}
