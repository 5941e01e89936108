package result

import (
	"slices"
	"strings"
	"testing"
)

// counted has an offload that keeps its goal for open connections, but not for new ones with policies.
func counted() *Instructions {
	i := &Instructions{}
	for variant, costs := range map[string][2]float64{
		Sluice: {39_000, 90_000}, Offload: {29_000, 91_000}, WithPolicies(Sluice): {41_000, 95_000}, WithPolicies(Offload): {29_000, 99_000},
	} {
		i.Exchanges = append(i.Exchanges, Exchange{"established-cluster-ip", variant, costs[0], 10},
			Exchange{"tcp-cluster-ip", variant, costs[1], 10}, Exchange{"tcp-pod", variant, 1, 1})
	}
	slices.SortFunc(i.Exchanges, func(a, b Exchange) int { return strings.Compare(a.Case+a.Variant, b.Case+b.Variant) })
	i.Exchanges = append(i.Exchanges, Exchange{"established-pod", Direct, 25_000, 10}, Exchange{"tcp-pod", Direct, 60_000, 10},
		Exchange{"established-pod", NoRules, 33_868.4, 10}, Exchange{"established-cluster-ip", "kube-proxy", 39_100, 10})
	return i
}

func TestInstructionsOfTheNode(t *testing.T) {
	var b strings.Builder
	if err := counted().Print(&b); err != nil {
		t.Fatal(err)
	}
	want := `instructions of the node          established TCP, round trip  new TCP connection  UDP question and answer  one-way datagram
client and pod alone                                   25,000              60,000
no rules                                                8,868
kube-proxy                                             14,100
sluice                                                 14,000              30,000
sluice with offload                                     4,000              31,000
sluice and policies                                    16,000              35,000
sluice with offload and policies                        4,000            !39,000!

`
	if b.String() != want {
		t.Errorf("printed\n%s\nwant\n%s", b.String(), want)
	}
}
