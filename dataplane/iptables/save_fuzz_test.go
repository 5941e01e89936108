package iptables

import (
	"testing"
)

func FuzzParseSave(f *testing.F) {
	f.Add(savedTable(NAT, ":A - [0:0]", `-A A -m comment --comment "x" -j A`))
	f.Add("*nat\n-A\nCOMMIT\n")
	f.Fuzz(func(t *testing.T, printed string) {
		s, err := parseSave(NAT, []byte(printed))
		if err != nil {
			return
		}
		for _, chain := range s.chains {
			if s.object(chain) == nil {
				t.Errorf("chain %q was read and is not there", chain)
			}
		}
	})
}
