package aggregator

import (
	"fmt"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/service"
)

func TestWaitsNameTheOldestFirst(t *testing.T) {
	w := newWaits()
	begin := time.Unix(1000, 0)
	for i := range 10 {
		w.begin(service.Key{Namespace: "ns", Name: fmt.Sprint(i)}, begin.Add(time.Duration(i)))
	}
	w.end(service.Key{Namespace: "ns", Name: "0"})
	got := w.first(3)
	if len(got) != 3 || got[0].Name != "1" || got[2].Name != "3" {
		t.Errorf("%v", got)
	}
	if got := w.first(100); len(got) != 9 {
		t.Errorf("%d keys", len(got))
	}
}

func BenchmarkWaitsFirst(b *testing.B) {
	w := newWaits()
	for i := range 10_000 {
		w.begin(service.Key{Namespace: "ns", Name: fmt.Sprint(i)}, time.Unix(int64(i), 0))
	}
	for b.Loop() {
		w.first(4096)
	}
}
