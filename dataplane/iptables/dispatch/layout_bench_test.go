package dispatch

import (
	"fmt"
	"testing"

	"github.com/sluice-proxy/sluice/dataplane"
)

// BenchmarkReplaceOne is one Service whose dispatch rule changes.
func BenchmarkReplaceOne(b *testing.B) {
	for _, size := range []int{100, 10_000, 100_000} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			layout := filled(size, sequential)
			layout.Flush()
			object := makeItem(services, sequential(size/2)).object
			other := *object
			other.Body += "2"
			versions := [2]*dataplane.Object{object, &other}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				layout.Put(versions[i%2], owner)
				layout.Flush()
			}
		})
	}
}

// BenchmarkCompose is a cold start.
func BenchmarkCompose(b *testing.B) {
	objects := make([]*dataplane.Object, 10_000)
	for i := range objects {
		objects[i] = makeItem(services, sequential(i)).object
	}
	b.ReportAllocs()
	for b.Loop() {
		layout := New(0, []Container{services})
		for _, object := range objects {
			layout.Put(object, owner)
		}
		layout.Flush()
	}
}
