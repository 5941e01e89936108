// SPDX-License-Identifier: Apache-2.0

package render

import (
	"math"
	"net/netip"
	"strconv"
	"testing"
)

func TestRule_Text(t *testing.T) {
	for _, test := range []struct {
		rule rule
		want string
	}{
		{rule{}, ""},
		{rule{target: "DROP"}, "-j DROP"},
		{rule{comment: comment{subject: "plain-word_1"}}, "-m comment --comment plain-word_1"},
		{rule{comment: comment{subject: "ns/svc"}}, `-m comment --comment "ns/svc"`},
		{rule{comment: comment{"a ", "b", ""}, target: "X"}, `-m comment --comment "a b" -j X`},
		{
			rule{source: addrMatch{netip.MustParsePrefix("10.1.2.3/8"), true}, target: "X"},
			"! -s 10.0.0.0/8 -j X",
		},
		{
			rule{
				source: host(netip.MustParseAddr("fd00::1")), destination: host(netip.MustParseAddr("fd00::2")),
				input: inputMatch{"cali+", true}, protocol: "udp", comment: comment{subject: "c"},
				match: "-m addrtype --src-type LOCAL", port: 53, target: "X",
			},
			"-s fd00::1/128 -d fd00::2/128 ! -i cali+ -p udp -m udp --dport 53" +
				" -m addrtype --src-type LOCAL -m comment --comment c -j X",
		},
	} {
		if got := string(test.rule.appendTo(nil)); got != test.want {
			t.Errorf("got  %s\nwant %s", got, test.want)
		}
	}
}

// TestProbability compares probabilities with what iptables-save 1.8.9 prints for the ten decimals that kube-proxy
// writes.
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
		if got := string(appendProbability(nil, 1, test.k)); got != test.want {
			t.Errorf("1/%d is %s, want %s", test.k, got, test.want)
		}
	}
}

// TestProbability_IsStable: the tools read a printed probability back as the same threshold, which is the nearest one
// to 1/k.
func TestProbability_IsStable(t *testing.T) {
	for k := 1; k <= 20_000; k++ {
		text := string(appendProbability(nil, 1, k))
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

// TestProbability_Weights: the probabilities of consecutive rules give each endpoint a share in proportion to its
// weight.
func TestProbability_Weights(t *testing.T) {
	weights := []int{1, 3, 6, 65535}
	total, left, reached := 0, 0, 1.0
	for _, w := range weights {
		total += w
	}
	for left = total; len(weights) > 1; weights = weights[1:] {
		chance, err := strconv.ParseFloat(string(appendProbability(nil, weights[0], left)), 64)
		if want := float64(weights[0]) / float64(total); err != nil || math.Abs(reached*chance-want) > 1e-9 {
			t.Errorf("weight %d of %d: share %v, want %v", weights[0], total, reached*chance, want)
		}
		reached, left = reached*(1-chance), left-weights[0]
	}
}
