package config

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"

	"k8s.io/kube-proxy/config/v1alpha1"
)

// Change is one difference between two configurations.
type Change struct {
	// Field is the path of the field; those of Sluice's document start with
	// "SluiceConfiguration.".
	Field string
	// Old and New are the values as a file would say them; empty for one that is
	// not set.
	Old, New string
	// Effect says what the change comes to in a running process.
	Effect Effect
	// Why says why; empty when there is nothing to say.
	Why string
}

// Compare gives the differences between two configurations, in the order of the
// documents.
func Compare(old, new *Config) (changes []Change) {
	a, b := reflect.ValueOf(old.document()).Elem(), reflect.ValueOf(new.document()).Elem()
	for _, path := range leavesOf(reflect.TypeFor[v1alpha1.KubeProxyConfiguration]()) {
		if path == "featureGates" {
			changes = append(changes, compareGates(old.KubeProxy.FeatureGates, new.KubeProxy.FeatureGates)...)
			continue
		}
		changes = appendChange(changes, path, at(a, path), at(b, path))
	}
	a, b = reflect.ValueOf(&old.Sluice).Elem(), reflect.ValueOf(&new.Sluice).Elem()
	for _, path := range leavesOf(reflect.TypeFor[SluiceConfiguration]()) {
		changes = appendChange(changes, sluicePrefix+path, at(a, path), at(b, path))
	}
	return changes
}

func appendChange(changes []Change, path string, a, b reflect.Value) []Change {
	old, new := valueText(a), valueText(b)
	if old == new {
		return changes
	}
	e := effects[path]
	return append(changes, Change{Field: path, Old: old, New: new, Effect: e.Effect, Why: e.why})
}

// valueText gives a value as a file would say it. Equal values have equal texts,
// which does not hold for the values themselves: a Quantity remembers how it was
// written.
func valueText(v reflect.Value) string {
	text, err := json.Marshal(v.Interface())
	if err != nil {
		panic("config: a configuration can always be written: " + err.Error())
	}
	if string(text) == "null" {
		return ""
	}
	var plain string
	if json.Unmarshal(text, &plain) == nil {
		return plain
	}
	return string(text)
}

// compareGates gives one change per feature gate.
func compareGates(old, new map[string]bool) (changes []Change) {
	names := maps.Clone(old)
	if names == nil {
		names = map[string]bool{}
	}
	maps.Copy(names, new)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		a, b := gateText(old, name), gateText(new, name)
		if a == b {
			continue
		}
		e := effects["featureGates"]
		if !gateMatters(name) {
			e = noEffect
		}
		changes = append(changes, Change{Field: "featureGates." + name, Old: a, New: b, Effect: e.Effect, Why: e.why})
	}
	return changes
}

func gateText(set map[string]bool, name string) string {
	if value, ok := set[name]; ok {
		return valueText(reflect.ValueOf(value))
	}
	return ""
}
