package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-proxy/sluice/service"
)

// slowest attaches the name of a Service to the slowest observation of a histogram, so that a slow
// percentile names a Service. It belongs to the goroutine of one domain.
type slowest struct {
	to      prometheus.ExemplarObserver
	seconds float64
	until   time.Time
}

// exemplarPeriod is how long an observation is the slowest one.
const exemplarPeriod = time.Minute

// exemplarMax is the largest size of an exemplar in characters (OpenMetrics 1.0), without the label's name.
const exemplarMax = prometheus.ExemplarMaxRunes - len(exemplarLabel)

const exemplarLabel = "service"

// observe observes a duration, which makes an exemplar only if it is the slowest one.
func (s *slowest) observe(now time.Time, key service.Key, took time.Duration) {
	seconds := took.Seconds()
	var labels prometheus.Labels
	if seconds >= s.seconds || now.After(s.until) {
		s.seconds, s.until = seconds, now.Add(exemplarPeriod)
		name := key.String()
		labels = prometheus.Labels{exemplarLabel: name[:min(len(name), exemplarMax)]}
	}
	s.to.ObserveWithExemplar(seconds, labels)
}
