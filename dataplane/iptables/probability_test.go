package iptables

import (
	"math"
	"strconv"
	"testing"
)

// What iptables-save 1.8.9 prints for the ten decimals that kube-proxy writes.
func TestProbability(t *testing.T) {
	for _, test := range []struct {
		k    int
		want string
	}{
		{1, "1.00000000000"},
		{2, "0.50000000000"},
		{3, "0.33333333349"},
		{4, "0.25000000000"},
		{5, "0.20000000019"},
		{6, "0.16666666651"},
		{7, "0.14285714272"},
		{11, "0.09090909082"},
		{5000, "0.00020000013"},
	} {
		if got := string(appendProbability(nil, test.k)); got != test.want {
			t.Errorf("1/%d is %s, want %s", test.k, got, test.want)
		}
	}
}

// The tools read the text back as the threshold it came from, and 1/k is met as
// closely as 31 bits allow.
func TestProbabilityIsStable(t *testing.T) {
	for k := 1; k <= 20_000; k++ {
		text := string(appendProbability(nil, k))
		p, err := strconv.ParseFloat(text, 64)
		if err != nil {
			t.Fatal(err)
		}
		threshold := math.Round(p * probabilityOne)
		if again := strconv.FormatFloat(threshold/probabilityOne, 'f', 11, 64); again != text {
			t.Fatalf("1/%d: %s is read back as %s", k, text, again)
		}
		if math.Abs(threshold-probabilityOne/float64(k)) > 0.5 {
			t.Fatalf("1/%d: threshold %.0f is not the nearest", k, threshold)
		}
	}
}
