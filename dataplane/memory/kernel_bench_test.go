package memory

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/sluice-proxy/sluice/service"
)

// services gives a nat table with that many Services of three endpoints behind
// one dispatch chain, the worst case for verification.
func services(count int) string {
	var b strings.Builder
	b.WriteString("*nat\n:SERVICES - [0:0]\n")
	for i := range count {
		fmt.Fprintf(&b, ":SVC-%d - [0:0]\n", i)
	}
	b.WriteString("-A PREROUTING -j SERVICES\n-A OUTPUT -j SERVICES\n")
	for i := range count {
		fmt.Fprintf(&b, "-A SERVICES -d 172.30.%d.%d/32 -p tcp -m tcp --dport 80 -j SVC-%d\n", i/256, i%256, i)
		b.WriteString(balancing(i))
	}
	b.WriteString("COMMIT\n")
	return b.String()
}

func balancing(i int) string {
	return fmt.Sprintf("-A SVC-%d -p tcp -m statistic --mode random --probability 0.33333333349 -j DNAT --to-destination 10.0.0.1:80\n"+
		"-A SVC-%[1]d -p tcp -m statistic --mode random --probability 0.50000000000 -j DNAT --to-destination 10.0.0.2:80\n"+
		"-A SVC-%[1]d -p tcp -j DNAT --to-destination 10.0.0.3:80\n", i)
}

// BenchmarkColdStart restores ten thousand Services in one input.
func BenchmarkColdStart(b *testing.B) {
	input := []byte(services(10_000))
	for b.Loop() {
		if err := NewKernel(service.IPv4).Restore(context.Background(), input); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkChange rewrites one Service among ten thousand.
func BenchmarkChange(b *testing.B) {
	k := NewKernel(service.IPv4)
	if err := k.Restore(context.Background(), []byte(services(10_000))); err != nil {
		b.Fatal(err)
	}
	input := []byte("*nat\n:SVC-77 - [0:0]\n" + balancing(77) + "COMMIT\n")
	for b.Loop() {
		if err := k.Restore(context.Background(), input); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkTrace follows a packet to the middle of ten thousand Services.
func BenchmarkTrace(b *testing.B) {
	k := NewKernel(service.IPv4)
	if err := k.Restore(context.Background(), []byte(services(10_000))); err != nil {
		b.Fatal(err)
	}
	packet := tcp("10.244.1.11", "172.30.20.1:80", "veth1")
	for b.Loop() {
		if k.Trace(packet, certain).Verdict != Delivered {
			b.Fatal("the packet was lost")
		}
	}
}
