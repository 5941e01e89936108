package metrics

import (
	"context"
	"strings"

	"k8s.io/component-base/featuregate"
	"k8s.io/component-base/metrics/features"
	"k8s.io/component-base/metrics/prometheus/feature"
)

// showNative sets the gate NativeHistograms for the metrics that are made from now
// on with the library of Kubernetes.
func showNative(enabled bool) error {
	gates := featuregate.NewFeatureGate()
	if err := features.AddFeatureGates(gates); err != nil {
		return err
	}
	if err := gates.SetFromMap(map[string]bool{string(features.NativeHistograms): enabled}); err != nil {
		return err
	}
	features.ApplyFeatureGates(gates)
	return nil
}

// recordFeatures fills kubernetes_feature_enabled, whose stage is written in
// capitals, and empty for features that are generally available.
func recordFeatures(all []Feature) {
	for _, f := range all {
		stage := strings.ToUpper(f.Stage)
		if stage == "GA" {
			stage = ""
		}
		feature.RecordFeatureInfo(context.Background(), f.Name, stage, f.Enabled)
	}
}
