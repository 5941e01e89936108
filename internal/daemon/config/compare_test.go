package config

import (
	"maps"
	"slices"
	"testing"
)

// TestEveryFieldHasAnEffect: of each field it is known what a change of it comes
// to; those that do not change in place say why.
func TestEveryFieldHasAnEffect(t *testing.T) {
	have, want := slices.Sorted(maps.Keys(effects)), allFields()
	slices.Sort(want)
	if !slices.Equal(have, want) {
		t.Errorf("effects of %v\nwant    %v", have, want)
	}
	for field, e := range effects {
		if e.Effect != InPlace && e.why == "" {
			t.Errorf("%s: does not change in place, and does not say why", field)
		}
	}
}

// TestCompareFindsEveryField: a change of any field is found, alone, and with its
// values.
func TestCompareFindsEveryField(t *testing.T) {
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
			if c.field == "featureGates" {
				want := map[string]Change{
					"featureGates.ComponentFlagz":   {"featureGates.ComponentFlagz", "", "false", HandOver, newFeatures.why},
					"featureGates.NativeHistograms": {"featureGates.NativeHistograms", "", "true", HandOver, newFeatures.why},
				}
				if !maps.Equal(found, want) {
					t.Errorf("%+v", found)
				}
				return
			}
			change := found[c.field]
			e := effects[c.field]
			if change.New != valueAt(new, c.field) || change.Old == change.New || change.Effect != e.Effect || change.Why != e.why {
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

// TestCompareNamed: to name the default is a change, since it counts then.
func TestCompareNamed(t *testing.T) {
	old, _ := load(t, "--config", write(t, kubeProxyHead))
	new, _ := load(t, "--config", write(t, kubeProxyHead+"iptables: {minSyncPeriod: 1s}\n"))
	if changes := Compare(old, new); len(changes) != 1 || changes[0] != (Change{"iptables.minSyncPeriod", "0s", "1s", InPlace, ""}) {
		t.Errorf("%+v", changes)
	}
}

// TestCompareMode: a change of the mode is one change; a feature gate that means
// nothing here can change at any time.
func TestCompareMode(t *testing.T) {
	old, _ := load(t, "--config", write(t, kubeProxyHead+"mode: iptables\n"))
	new, _ := load(t, "--config", write(t, kubeProxyHead+"mode: ipvs\nfeatureGates: {DRADeviceTaintRules: true}\n"))
	want := []Change{
		{"featureGates.DRADeviceTaintRules", "", "true", NoEffect, noEffect.why},
		{"mode", "iptables", "ipvs", HandOver, newBackend.why},
	}
	if changes := Compare(old, new); !slices.Equal(changes, want) {
		t.Errorf("%+v\nwant %+v", changes, want)
	}
	if changes := Compare(new, new); changes != nil {
		t.Errorf("%+v between equals", changes)
	}
}
