package config

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// TestCompareFindsEveryField: a change of any field is found, alone, with its values.
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

// TestCompareNamed: to name the default is a change, because it then applies.
func TestCompareNamed(t *testing.T) {
	old, _ := load(t, "--config", write(t, kubeProxyHead))
	new, _ := load(t, "--config", write(t, kubeProxyHead+"iptables: {minSyncPeriod: 1s}\n"))
	if changes := Compare(old, new); len(changes) != 1 || changes[0] != (Change{"iptables.minSyncPeriod", "0s", "1s"}) {
		t.Errorf("%+v", changes)
	}
}

// TestCompareMode: a change of the mode is one change.
func TestCompareMode(t *testing.T) {
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

// TestDocs: docs/configuration.md names every flag and every field, in the table of its
// document.
func TestDocs(t *testing.T) {
	text, err := os.ReadFile("../../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	_, tables, _ := strings.Cut(string(text), "\n## KubeProxyConfiguration\n")
	kubeProxy, own, _ := strings.Cut(tables, "\n## SluiceConfiguration\n")
	f, err := parse()
	if err != nil {
		t.Fatal(err)
	}
	f.set.VisitAll(func(flag *pflag.Flag) {
		word := "`--" + flag.Name
		if len(flag.Name) == 1 {
			word = "`-" + flag.Name
		}
		if !strings.Contains(string(text), word+"`") {
			t.Errorf("flag --%s is missing", flag.Name)
		}
	})
	for _, field := range allFields() {
		path, second := strings.CutPrefix(field, sluicePrefix)
		if path == "apiVersion" || path == "kind" {
			continue
		}
		part := kubeProxy
		if second {
			part = own
		}
		if !hasRow(part, path) {
			t.Errorf("field %s is missing", field)
		}
	}
}

// hasRow reports whether the first cell of a row names a field.
func hasRow(text, path string) bool {
	for line := range strings.Lines(text) {
		first, _, _ := strings.Cut(strings.TrimPrefix(line, "| "), " | ")
		if strings.HasPrefix(line, "| `") && strings.Contains(first, "`"+path+"`") {
			return true
		}
	}
	return false
}
