package config

import (
	"slices"
	"testing"
)

// TestGates: the list is complete, and right about the gates that the specification names.
func TestGates(t *testing.T) {
	c, _ := load(t)
	gates := c.Gates()
	if len(gates) != 242 {
		t.Errorf("%d gates, want the 242 of kube-proxy v1.36.3", len(gates))
	}
	for _, want := range []Gate{
		{Name: "AllowServiceExternalIPs", Stage: "GA", Enabled: true},
		{Name: "PreferSameTrafficDistribution", Stage: "GA", Enabled: true, Locked: true},
		{Name: "MultiCIDRServiceAllocator", Stage: "GA", Enabled: true, Locked: true},
		{Name: "ComponentFlagz", Stage: "beta", Enabled: true},
		{Name: "ComponentStatusz", Stage: "beta", Enabled: true},
		{Name: "NativeHistograms", Stage: "alpha"},
		{Name: "ContextualLogging", Stage: "beta", Enabled: true},
		{Name: "LoggingAlphaOptions", Stage: "alpha"},
		{Name: "LoggingBetaOptions", Stage: "beta", Enabled: true},
		{Name: "AllAlpha", Stage: "alpha"},
		{Name: "AllBeta", Stage: "beta"},
	} {
		i := slices.IndexFunc(gates, func(g Gate) bool { return g.Name == want.Name })
		if i < 0 {
			t.Errorf("%s is missing", want.Name)
			continue
		}
		g := gates[i]
		if g.Stage != want.Stage || g.Enabled != want.Enabled || g.Locked != want.Locked {
			t.Errorf("%+v, want %+v", g, want)
		}
	}
	for _, g := range gates {
		if !slices.Contains([]string{"alpha", "beta", "GA", "deprecated"}, g.Stage) {
			t.Errorf("%s: stage %q", g.Name, g.Stage)
		}
		for _, need := range g.needs {
			if _, ok := knownGates()[need]; !ok {
				t.Errorf("%s needs %s, which is unknown", g.Name, need)
			}
		}
	}
}

// TestGatesOfAStage: a gate's own setting overrides that of its stage, and the toggles of
// stages do not affect each other.
func TestGatesOfAStage(t *testing.T) {
	c := Config{}
	c.KubeProxy.FeatureGates = map[string]bool{"AllAlpha": true, "NativeHistograms": false, "AllBeta": false}
	for name, want := range map[string]bool{
		"LoggingAlphaOptions": true, "NativeHistograms": false, "AllAlpha": true, "AllBeta": false,
		"ComponentFlagz": false, "AllowServiceExternalIPs": true, "Nonsense": false,
	} {
		if c.GateEnabled(name) != want {
			t.Errorf("%s is %v", name, !want)
		}
	}
}

// TestGatesNeedOthers: DRADeviceTaintRules, off by default, needs DRADeviceTaints,
// on by default.
func TestGatesNeedOthers(t *testing.T) {
	for words, want := range map[string]string{
		"DRADeviceTaintRules=true":                       "nothing",
		"DRADeviceTaintRules=true,DRADeviceTaints=false": `--feature-gates: DRADeviceTaintRules: DRADeviceTaintRules is on and needs DRADeviceTaints, which is off`,
	} {
		if said := refused("--feature-gates=" + words); said != want {
			t.Errorf("%s: %s", words, said)
		}
	}
}

// TestLoggingGates: unstable options need their feature gate.
func TestLoggingGates(t *testing.T) {
	for _, c := range []struct {
		words []string
		want  string
	}{
		{[]string{"--log-text-split-stream"}, `--log-text-split-stream true: want false, unless the feature gate LoggingAlphaOptions is on`},
		{[]string{"--log-json-info-buffer-size=1Ki"}, `--log-json-info-buffer-size "1Ki": want 0, unless the feature gate LoggingAlphaOptions is on`},
		{[]string{"--log-text-split-stream", "--log-text-info-buffer-size=1Ki", "--feature-gates=LoggingAlphaOptions=true"}, "nothing"},
		{[]string{"--logging-format=json", "--feature-gates=LoggingBetaOptions=false"}, `--logging-format "json": want text, unless the feature gate LoggingBetaOptions is on`},
		{[]string{"--logging-format=json", "--vmodule=a=1"}, `--vmodule "a=1": want nothing, because logging.format is json`},
	} {
		if said := refused(c.words...); said != c.want {
			t.Errorf("%v: %s\nwant %s", c.words, said, c.want)
		}
	}
}
