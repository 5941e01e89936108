package reduce

import "testing"

func TestPathText(t *testing.T) {
	tests := []struct {
		path path
		want string
	}{
		{field("spec.clusterIP"), "spec.clusterIP"},
		{at("spec.externalIPs", 1), "spec.externalIPs[1]"},
		{at("spec.ports", 0).dot("nodePort"), "spec.ports[0].nodePort"},
		{at("endpoints", 12).dot("addresses[0]"), "endpoints[12].addresses[0]"},
	}
	for _, tt := range tests {
		if got := tt.path.String(); got != tt.want {
			t.Errorf("got %q, want %q", got, tt.want)
		}
	}
}
