// SPDX-License-Identifier: Apache-2.0

package config

import (
	"slices"
	"strings"
	"testing"
)

// TestGates: the list contains all feature gates of kube-proxy, with the stages and defaults of those that the
// specification names.
func TestGates(t *testing.T) {
	c, _ := load(t)
	gates := c.Gates()
	if len(gates) != 254 {
		t.Errorf("%d gates, want the 254 of kube-proxy v1.37.2", len(gates))
	}
	for _, want := range []Gate{
		{Name: "AllowServiceExternalIPs", Stage: "GA", Enabled: true},
		{Name: "PreferSameTrafficDistribution", Stage: "GA", Enabled: true, Locked: true},
		{Name: "MultiCIDRServiceAllocator", Stage: "GA", Enabled: true, Locked: true},
		{Name: "ComponentFlagz", Stage: "beta", Enabled: true},
		{Name: "ComponentStatusz", Stage: "beta", Enabled: true},
		{Name: "NativeHistograms", Stage: "beta", Enabled: true},
		{Name: "KubeProxyIPVS", Stage: "deprecated", Enabled: true},
		{Name: "KubeProxyNFTablesLocalhostNodePorts", Stage: "alpha"},
		{Name: "NFTablesNetlink", Stage: "beta", Enabled: true},
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

// TestGates_Stage: a gate's own setting overrides that of its stage, and the settings of stages do not affect each
// other.
func TestGates_Stage(t *testing.T) {
	c := Config{}
	c.KubeProxy.FeatureGates = map[string]bool{"AllAlpha": true, "KubeProxyNFTablesLocalhostNodePorts": false, "AllBeta": false}
	for name, want := range map[string]bool{
		"LoggingAlphaOptions": true, "KubeProxyNFTablesLocalhostNodePorts": false, "NativeHistograms": false, "AllAlpha": true, "AllBeta": false,
		"ComponentFlagz": false, "AllowServiceExternalIPs": true, "Nonsense": false,
	} {
		if c.GateEnabled(name) != want {
			t.Errorf("%s is %v", name, !want)
		}
	}
}

// TestGates_NeedOthers: a gate that depends on a disabled gate is rejected: ClusterTrustBundleProjection needs
// ClusterTrustBundle, which is on by default.
func TestGates_NeedOthers(t *testing.T) {
	for words, want := range map[string]string{
		"ClusterTrustBundleProjection=true":                          "nothing",
		"ClusterTrustBundleProjection=true,ClusterTrustBundle=false": `--feature-gates: ClusterTrustBundleProjection: ClusterTrustBundleProjection is on and needs ClusterTrustBundle, which is off`,
	} {
		if said := rejected("--feature-gates=" + words); said != want {
			t.Errorf("%s: %s", words, said)
		}
	}
}

// TestGates_Logging: alpha and beta options of logging need their feature gate.
func TestGates_Logging(t *testing.T) {
	for _, c := range []struct {
		words []string
		want  string
	}{
		{[]string{"--log-text-split-stream"}, `--log-text-split-stream true: must be false, unless the feature gate LoggingAlphaOptions is on`},
		{[]string{"--log-json-info-buffer-size=1Ki"}, `--log-json-info-buffer-size "1Ki": must be 0, unless the feature gate LoggingAlphaOptions is on`},
		{[]string{"--log-text-split-stream", "--log-text-info-buffer-size=1Ki", "--feature-gates=LoggingAlphaOptions=true"}, "nothing"},
		{[]string{"--logging-format=json", "--feature-gates=LoggingBetaOptions=false"}, `--logging-format "json": must be text, unless the feature gate LoggingBetaOptions is on`},
		{[]string{"--logging-format=json", "--vmodule=a=1"}, `--vmodule "a=1": must be nothing, because logging.format is json`},
	} {
		if said := rejected(c.words...); said != c.want {
			t.Errorf("%v: %s\nwant %s", c.words, said, c.want)
		}
	}
}

// TestGates_OtherReleases: a configuration with feature gates of the previous or a newer release loads, with a warning.
func TestGates_OtherReleases(t *testing.T) {
	for words, want := range map[string]string{
		"KubeProxyIPVS=true,NFTablesNetlink=false,KubeProxyNFTablesLocalhostNodePorts=true": "",
		"SidecarContainers=true":  "this feature gate no longer exists in Kubernetes v1.37, ignored",
		"GateOfNewerRelease=true": "unknown feature gate, ignored",
	} {
		_, warnings := load(t, "--feature-gates="+words)
		warnings = slices.DeleteFunc(warnings, func(w Warning) bool { return strings.Contains(w.Message, "is deprecated and will be removed") })
		if want == "" && len(warnings) > 0 || want != "" && (len(warnings) != 1 || !strings.HasSuffix(warnings[0].Message, want)) {
			t.Errorf("%s: warnings %+v, want %q", words, warnings, want)
		}
	}
}
