package daemon

import (
	"testing"

	"github.com/sluice-proxy/sluice/observe/health"
)

// TestWhichFindingsAConfigurationCauses: a finding counts if it is new, and one about Services if a Service is affected
// that existed before and was not affected.
func TestWhichFindingsAConfigurationCauses(t *testing.T) {
	about := func(kind health.Kind, more int, names ...string) *health.Finding {
		f := &health.Finding{Kind: kind, More: more}
		for _, name := range names {
			f.Services = append(f.Services, health.Affected{Service: name})
		}
		return f
	}
	tried := &trial{found: map[string]bool{}, served: map[string]bool{"shop/web": true, "shop/large": true}}
	for _, f := range []*health.Finding{about(health.TooLarge, 0, "shop/large"), about(health.AddressTaken, 0)} {
		for _, key := range keysOf(f) {
			tried.found[key] = true
		}
	}
	for name, c := range map[string]struct {
		f    *health.Finding
		want bool
	}{
		"as before":                      {about(health.AddressTaken, 0), false},
		"new":                            {about(health.WriteFailing, 0), true},
		"the same Service":               {about(health.TooLarge, 0, "shop/large"), false},
		"a Service that existed":         {about(health.TooLarge, 0, "shop/large", "shop/web"), true},
		"a Service that a tenant adds":   {about(health.TooLarge, 0, "shop/large", "evil/new"), false},
		"Services beyond the named ones": {about(health.TooLarge, 1, "shop/large"), true},
	} {
		if got := tried.causes(c.f); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
