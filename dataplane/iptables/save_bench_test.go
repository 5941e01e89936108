package iptables

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// largeTable prints nat with chains of ten rules each.
func largeTable(chains int) []byte {
	var declared, rules strings.Builder
	for i := range chains {
		fmt.Fprintf(&declared, ":KUBE-SVC-%016d - [0:0]\n", i)
		for j := range 10 {
			fmt.Fprintf(&rules, "-A KUBE-SVC-%016d -p tcp -m comment --comment \"shop/blue -> 10.1.2.3:80\" "+
				"-m statistic --mode random --probability 0.50000000000 -j DNAT --to-destination 10.%d.%d.%d:80\n", i, j, i>>8, i&255)
		}
	}
	return []byte("*nat\n" + declared.String() + rules.String() + "COMMIT\n")
}

// BenchmarkRead is what one audit costs beside iptables-save: 5,000 chains of
// ten rules.
func BenchmarkRead(b *testing.B) {
	tool := &scriptedTool{saves: map[Table]string{NAT: string(largeTable(5000))}}
	w := NewWriter(service.IPv4, tool, WriterConfig{})
	for b.Loop() {
		objects, err := w.Read(b.Context())
		if err != nil || len(objects) != 5000 {
			b.Fatal(len(objects), err)
		}
	}
}

// BenchmarkInput is what the first write costs beside iptables-restore: 5,000
// chains of ten rules.
func BenchmarkInput(b *testing.B) {
	s, err := parseSave(NAT, largeTable(5000))
	if err != nil {
		b.Fatal(err)
	}
	var changes []dataplane.Change
	for _, name := range s.chains {
		changes = append(changes, changeOf(blue, nil, s.object(name)))
	}
	for b.Loop() {
		if in := newInput(changes); in.rules != 50_000 {
			b.Fatal(in.rules)
		}
	}
}
