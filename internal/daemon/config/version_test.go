package config

import "testing"

func TestVersion(t *testing.T) {
	for text, want := range map[string]Version{
		"true": {Show: true}, "1": {Show: true}, "false": {}, "raw": {Show: true, Raw: true},
		"v1.36.0": {Reported: "v1.36.0"}, "v1.36.3-rc.1+abc": {Reported: "v1.36.3-rc.1+abc"},
	} {
		var v Version
		if err := v.Set(text); err != nil || v != want {
			t.Errorf("%s: %+v, %v", text, v, err)
		}
		var back Version
		if err := back.Set(v.String()); err != nil || back != v {
			t.Errorf("%s: %+v comes back as %+v, %v", text, v, back, err)
		}
	}
	for _, text := range []string{"", "v1", "1.36.0", "vx.y.z", "yes"} {
		var v Version
		if err := v.Set(text); err == nil {
			t.Errorf("%q is taken: %+v", text, v)
		}
	}
}
