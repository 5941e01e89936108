// SPDX-License-Identifier: Apache-2.0

package config

import (
	"maps"
	"slices"
	"testing"
)

// TestCompare_EveryField: a change of any field is found, alone, with its values.
func TestCompare_EveryField(t *testing.T) {
	for _, c := range fieldCases {
		if c.field == "apiVersion" || c.field == "kind" || c.field == "SluiceConfiguration.apiVersion" || c.field == "SluiceConfiguration.kind" {
			continue // there is only one value
		}
		t.Run(c.field, func(t *testing.T) {
			before := maps.Clone(c.with)
			if before["detectLocalMode"] != "" {
				before[c.field] = "old" // the mode does not go without
			}
			old, _ := load(t, "--config", write(t, textOf(t, before)))
			new, _ := load(t, "--config", write(t, c.text(t, c.set)))
			found := map[string]Change{}
			for _, change := range Compare(old, new) {
				found[change.Field] = change
			}
			if change := found[c.field]; change.New != valueAt(new, c.field) || change.Old == change.New {
				t.Errorf("%+v", found)
			}
			delete(found, c.field)
			if c.field == "SluiceConfiguration.healthz.disabled" {
				delete(found, "healthzBindAddress") // which it blanks
			}
			if c.field == "mode" {
				delete(found, "SluiceConfiguration.nftables.localhostNodePorts") // whose default it decides
			}
			if len(found) > 0 {
				t.Errorf("others: %+v", found)
			}
		})
	}
}

// TestCompare_NamedDefault: setting a field to its default is a change, because the default then applies.
func TestCompare_NamedDefault(t *testing.T) {
	old, _ := load(t, "--config", write(t, kubeProxyHead))
	new, _ := load(t, "--config", write(t, kubeProxyHead+"iptables: {minSyncPeriod: 1s}\n"))
	if changes := Compare(old, new); len(changes) != 1 || changes[0] != (Change{"iptables.minSyncPeriod", "0s", "1s"}) {
		t.Errorf("%+v", changes)
	}
}

// TestCompare_Mode: a change of the mode is one change.
func TestCompare_Mode(t *testing.T) {
	old, _ := load(t, "--config", write(t, kubeProxyHead+"mode: iptables\n"))
	new, _ := load(t, "--config", write(t, kubeProxyHead+"mode: ipvs\nfeatureGates: {DRADeviceTaintRules: true}\n"))
	want := []Change{{"featureGates", "{}", `{"DRADeviceTaintRules":true}`}, {"mode", "iptables", "ipvs"}}
	if changes := Compare(old, new); !slices.Equal(changes, want) {
		t.Errorf("%+v\nwant %+v", changes, want)
	}
	if changes := Compare(new, new); changes != nil {
		t.Errorf("%+v between equals", changes)
	}
}
