package health

import "testing"

func TestPrefersJSON(t *testing.T) {
	tests := []struct {
		accept string
		want   bool
	}{
		{"", false},
		{"*/*", false},
		{"application/json", true},
		{"application/json; charset=utf-8", true},
		{"application/*", true},
		{"text/html, application/json;q=0.9, */*;q=0.8", true},
		{"text/plain", false},
		{"text/plain, application/json", false},
		{"text/plain;q=0.5, application/json", true},
		{"text/plain, application/json;q=0.9", false},
		{"text/*;q=0.1,application/json;q=0.2", true},
		{"application/json;q=0", false},
		{"application/json;q=high", false},
		{"application/vnd.kubernetes.protobuf", false},
		{";;,application/json", true},
		{"application/jsonx", false},
	}
	for _, tt := range tests {
		if got := prefersJSON(tt.accept); got != tt.want {
			t.Errorf("%q: got %v, want %v", tt.accept, got, tt.want)
		}
	}
}
