// SPDX-License-Identifier: Apache-2.0

package config

import (
	_ "embed" // gates.txt
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
)

//go:embed gates.txt
var gatesText string

// The feature gates that have an effect here; the others are accepted and
// ignored.
const (
	GateAllowServiceExternalIPs = "AllowServiceExternalIPs"
	GateComponentFlagz          = "ComponentFlagz"
	GateComponentStatusz        = "ComponentStatusz"
	GateNativeHistograms        = "NativeHistograms"
	GateNFTablesLocalhost       = "KubeProxyNFTablesLocalhostNodePorts"
	gateIPVS                    = "KubeProxyIPVS"
	gateLoggingAlphaOptions     = "LoggingAlphaOptions"
	gateLoggingBetaOptions      = "LoggingBetaOptions"
)

// allGates are the names that stand for all gates of a stage.
var allGates = map[string]string{"AllAlpha": "alpha", "AllBeta": "beta"}

// Gate is a feature gate of Kubernetes v1.37.
type Gate struct {
	Name string
	// Stage is "alpha", "beta", "GA" or "deprecated".
	Stage   string
	Enabled bool
	// Locked gates cannot be changed.
	Locked bool
	// needs are the gates without which this one cannot be on.
	needs []string
}

// stageRemoved is the stage of gates that only the previous release knows. They have no effect.
const stageRemoved = "removed"

// knownGates returns every gate with its default, by name, those of the previous release included.
var knownGates = sync.OnceValue(func() map[string]Gate {
	known := map[string]Gate{}
	for line := range strings.Lines(gatesText) {
		words := strings.Fields(line)
		if len(words) == 0 || words[0] == "#" {
			continue
		}
		gate := Gate{Name: words[0], Stage: words[1]}
		for _, word := range words[2:] {
			gate.Enabled = gate.Enabled || word == "on"
			if list, ok := strings.CutPrefix(word, "needs="); ok {
				gate.needs = strings.Split(list, ",")
			} else {
				gate.Locked = gate.Locked || word == "locked"
			}
		}
		known[gate.Name] = gate
	}
	return known
})

// Gates returns all feature gates as they are set, sorted by name.
func (c *Config) Gates() []Gate {
	gates := effectiveGates(c.KubeProxy.FeatureGates)
	return slices.SortedFunc(maps.Values(gates), func(a, b Gate) int { return strings.Compare(a.Name, b.Name) })
}

// GateEnabled reports whether a feature gate is on; an unknown one is off.
func (c *Config) GateEnabled(name string) bool {
	return effectiveGates(c.KubeProxy.FeatureGates)[name].Enabled
}

// effectiveGates applies settings to the defaults. A gate's own setting takes precedence
// over the one for all gates of its stage.
func effectiveGates(set map[string]bool) map[string]Gate {
	gates := maps.Clone(knownGates())
	maps.DeleteFunc(gates, func(_ string, gate Gate) bool { return gate.Stage == stageRemoved })
	for name, gate := range gates {
		for all, stage := range allGates {
			if value, ok := set[all]; ok && gate.Stage == stage && allGates[name] == "" {
				gate.Enabled = value
			}
		}
		if value, ok := set[name]; ok {
			gate.Enabled = value
		}
		gates[name] = gate
	}
	return gates
}

// checkGates checks the settings of feature gates.
func checkGates(set map[string]bool, found *findings) (warnings []finding) {
	known := knownGates()
	wrong := len(*found)
	for _, name := range slices.Sorted(maps.Keys(set)) {
		field, value := "featureGates."+name, set[name]
		gate, ok := known[name]
		switch {
		case !ok: // perhaps one of a newer release, which must not stop the proxy of a node that is not yet upgraded
			warnings = append(warnings, finding{field, "unknown feature gate, ignored"})
		case gate.Stage == stageRemoved:
			warnings = append(warnings, finding{field, "this feature gate no longer exists in Kubernetes v1.37, ignored"})
		case gate.Locked && value != gate.Enabled:
			found.wrong(field, value, "%t; this feature gate is locked", gate.Enabled)
		case gate.Stage == "GA" || gate.Stage == "deprecated":
			warnings = append(warnings, finding{field, fmt.Sprintf("this feature gate is %s and will be removed from Kubernetes", gate.Stage)})
		}
	}
	if len(*found) > wrong {
		return warnings
	}
	gates := effectiveGates(set)
	for _, name := range slices.Sorted(maps.Keys(gates)) {
		for _, need := range gates[name].needs {
			if gates[name].Enabled && !gates[need].Enabled {
				*found = append(*found, finding{"featureGates." + blame(set, name, need), fmt.Sprintf("%s is on and needs %s, which is off", name, need)})
			}
		}
	}
	return warnings
}

// blame returns the setting that leaves a gate on while one that it needs is off.
func blame(set map[string]bool, gate, need string) string {
	for _, name := range []string{gate, need, "AllAlpha", "AllBeta"} {
		if _, ok := set[name]; ok {
			return name
		}
	}
	return gate
}
