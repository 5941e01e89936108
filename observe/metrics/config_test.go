package metrics

import (
	"strings"
	"testing"
)

func TestConfigErrorsSayWhatIsWanted(t *testing.T) {
	for want, config := range map[string]Config{
		`mode "userspace": want iptables, nftables or ipvs`: {Mode: "userspace"},
		`domain "": want a name`:                            {Mode: modeIPVS, Domains: []Domain{{}}},
		`domain "a": want a name that no other domain has`:  {Mode: modeIPVS, Domains: []Domain{{Name: "a"}, {Name: "a"}}},
	} {
		if _, err := New(config); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
