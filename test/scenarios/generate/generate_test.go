package generate

import "testing"

func TestSameSeedSameText(t *testing.T) {
	for seed := range uint64(50) {
		for _, mode := range []string{"iptables", "nftables"} {
			var texts [2]string
			for i := range texts {
				s, err := Scenario(seed, mode)
				if err != nil {
					t.Fatal(err)
				}
				texts[i] = Text(s)
			}
			if texts[0] != texts[1] {
				t.Errorf("mode %s:\n%s\n\n%s", mode, texts[0], texts[1])
			}
		}
	}
	one, _ := Scenario(1, "nftables")
	two, _ := Scenario(2, "nftables")
	if Text(one) == Text(two) {
		t.Error("two seeds make the same scenario")
	}
}
