package reduce

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"unsafe"
)

func TestInternShares(t *testing.T) {
	text := "node-of-TestInternShares"
	first, second := intern(strings.Clone(text)), intern(strings.Clone(text))
	if first != text || second != text {
		t.Fatalf("got %q and %q", first, second)
	}
	if unsafe.StringData(first) != unsafe.StringData(second) {
		t.Error("two copies of one name")
	}
}

// TestInternDoesNotPin: a result must not keep the caller's memory alive.
func TestInternDoesNotPin(t *testing.T) {
	large := strings.Repeat("x", 1000) + "node-of-TestInternDoesNotPin"
	name := large[1000:]
	if unsafe.StringData(intern(name)) == unsafe.StringData(name) {
		t.Error("the result is part of the object")
	}
}

// TestInternUnderPressure: more names than slots, from many goroutines.
func TestInternUnderPressure(t *testing.T) {
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for i := range 2 * internSlots {
				if want := fmt.Sprint(i); intern(want) != want {
					t.Errorf("intern(%q) is something else", want)
				}
			}
		})
	}
	group.Wait()
}

func TestInternEmpty(t *testing.T) {
	if intern("") != "" {
		t.Error("empty is not empty")
	}
}
