// SPDX-License-Identifier: Apache-2.0

package config

import (
	"strings"
	"testing"
)

// TestObserved: connections are observed only in named namespaces. Files of earlier versions keep their meaning, with a
// warning that names the field.
func TestObserved(t *testing.T) {
	for name, c := range map[string]struct {
		value          string
		shop, web, odd bool
	}{
		"default":      {},
		"off":          {value: "off"},
		"all":          {value: "all", shop: true, web: true},
		"some":         {value: "shop,team-a", shop: true},
		"former true":  {value: "true", shop: true, web: true, odd: true},
		"former false": {value: "false", odd: true},
	} {
		for _, way := range []string{"quoted", "plain"} {
			value := c.value
			if way == "quoted" {
				value = `"` + value + `"`
			}
			args := []string{"--config", write(t, kubeProxyHead+"---\n"+sluiceHead+"balancing:\n  observeConnections: "+value+"\n")}
			if c.value == "" {
				args = nil
			}
			got, warnings := load(t, args...)
			o := got.Sluice.Balancing.ObserveConnections
			if o.In("shop") != c.shop || o.In("web") != c.web || o == "true" || o == "false" {
				t.Errorf("%s, %s: %q", name, way, o)
			}
			if odd := len(warnings) == 1 && strings.Contains(warnings[0].String(), "observe"); odd != c.odd || !odd && len(warnings) > 0 {
				t.Errorf("%s, %s: warnings %v", name, way, warnings)
			}
		}
	}
}
