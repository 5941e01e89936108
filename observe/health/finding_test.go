package health

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestBounded(t *testing.T) {
	for _, n := range []int{0, 1, ServicesMax, ServicesMax + 1, 1000} {
		var all []Affected
		for i := range n {
			all = append(all, Affected{Service: fmt.Sprintf("ns1/%04d", i)})
		}
		rand.Shuffle(n, func(i, j int) { all[i], all[j] = all[j], all[i] })
		named, more := bounded(all)
		if len(named) != min(n, ServicesMax) || len(named)+more != n {
			t.Errorf("%d: %d named and %d more", n, len(named), more)
		}
		for i, a := range named {
			if want := fmt.Sprintf("ns1/%04d", i); a.Service != want {
				t.Errorf("%d: number %d is %s, want %s", n, i, a.Service, want)
			}
		}
	}
}

func TestOneLine(t *testing.T) {
	for text, want := range map[string]string{
		"":                             "",
		"one line":                     "one line",
		"\n two\r\n\t lines \n":        "two lines",
		"broken \xff text":             "broken ? text",
		strings.Repeat("a", lineMax):   strings.Repeat("a", lineMax),
		strings.Repeat("ä", lineMax):   strings.Repeat("ä", lineMax/2) + "…",
		"x" + strings.Repeat("ä", 999): "x" + strings.Repeat("ä", (lineMax-1)/2) + "…",
	} {
		if got := oneLine(text); got != want || !utf8.ValidString(got) {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}
