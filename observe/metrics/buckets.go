package metrics

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// The buckets of kube-proxy (v1.36), in seconds.
var (
	syncBuckets               = prometheus.ExponentialBuckets(0.001, 2, 15)
	networkProgrammingBuckets = slices.Concat(
		[]float64{0.25, 0.5},
		prometheus.LinearBuckets(1, 1, 59),
		prometheus.LinearBuckets(60, 5, 12),
		prometheus.LinearBuckets(120, 30, 7),
	)
)

// The classic buckets of ours, for those who do not scrape native histograms.
var (
	// finely goes from 50 µs to 52 s.
	finely = prometheus.ExponentialBuckets(50e-6, 2, 21)
	// counts goes from 1 to 262,144 things.
	counts = prometheus.ExponentialBuckets(1, 4, 10)
	// sizes goes from 64 bytes to 16 MiB.
	sizes = prometheus.ExponentialBuckets(64, 4, 10)
)

// The shape of native histograms: buckets grow by at most a tenth, and past
// nativeBuckets of them a histogram starts anew, at most once per
// nativeReset, or else doubles the width of its buckets. 160 are what
// Kubernetes takes (component-base v0.36), too.
const (
	nativeFactor  = 1.1
	nativeBuckets = 160
	nativeReset   = time.Hour
)

func histogramOf(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: name, Help: help, Buckets: buckets,
		NativeHistogramBucketFactor:     nativeFactor,
		NativeHistogramMaxBucketNumber:  nativeBuckets,
		NativeHistogramMinResetDuration: nativeReset,
	}, labels)
}

func counterOf(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
}

func gaugeOf(name, help string, labels ...string) *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
}
