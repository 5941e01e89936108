// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// TestMetrics_SlowestChangeExemplar: in OpenMetrics, the slowest change of a minute names its Service, and faster ones
// do not.
func TestMetrics_SlowestChangeExemplar(t *testing.T) {
	m := listedMetrics(t, 3)
	at := time.Now()
	long := service.Key{Namespace: strings.Repeat("n", 63), Name: strings.Repeat("s", 63)}
	for _, change := range []struct {
		key   service.Key
		after time.Duration // of the first change
		took  time.Duration
	}{
		{serviceKey(0), 0, 900 * time.Microsecond},
		{serviceKey(1), time.Second, 20 * time.Millisecond},
		{serviceKey(2), 2 * time.Second, 10 * time.Millisecond}, // faster
		{long, 2 * time.Minute, 100 * time.Millisecond},
	} {
		applied := at.Add(change.after)
		m.Aggregator(aggregator.Applied{Domain: domain4, At: applied, Contribution: dataplane.Contribution{Key: change.key, Received: applied.Add(-change.took)}})
	}
	body, err := io.ReadAll(serve(t, m, "application/openmetrics-text;version=1.0.0").Body)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for line := range strings.Lines(string(body)) {
		if bucket, exemplar, ok := strings.Cut(line, " # {service=\""); ok && strings.HasPrefix(bucket, "sluice_programming_duration_seconds_bucket") {
			name, rest, _ := strings.Cut(exemplar, "\"} ")
			seconds, _, _ := strings.Cut(rest, " ")
			found[name] = seconds
		}
	}
	want := map[string]string{serviceKey(0).String(): "0.0009", serviceKey(1).String(): "0.02", long.String()[:exemplarMax]: "0.1"}
	if len(found) != len(want) {
		t.Errorf("exemplars of %v, want %v", found, want)
	}
	for name, seconds := range want {
		if found[name] != seconds {
			t.Errorf("exemplar of %s is %q, want %s", name, found[name], seconds)
		}
	}
}
