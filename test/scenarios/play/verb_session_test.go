// SPDX-License-Identifier: Apache-2.0

package play

import (
	"slices"
	"strings"
	"testing"
)

// TestTimes: times reads the name and the count of sessions.
func TestTimes(t *testing.T) {
	for word, want := range map[string]int{"s1": 1, "many*200": 200, "many*1": 1} {
		name, count, err := times(word)
		if err != nil || count != want || name != word[:len(name)] || name == "" {
			t.Errorf("%s: got %q, %d, %v, want %d", word, name, count, err, want)
		}
	}
	for _, word := range []string{"many*", "many*0", "many*x"} {
		if _, _, err := times(word); err == nil {
			t.Errorf("%s: want an error", word)
		}
	}
}

func TestParseCrowd(t *testing.T) {
	c, err := parseCrowd(strings.Fields("many p1*50 nodeport/udp a b as client x7"))
	if err != nil {
		t.Fatal(err)
	}
	if c.name != "many" || c.client != "p1" || c.count != 50 || c.times != 7 || c.want.as != "client" || !slices.Equal(c.want.names, []string{"a", "b"}) {
		t.Errorf("%+v", c)
	}
	if c, err = parseCrowd(strings.Fields("one x cluster a")); err != nil || c.count != 0 || c.times != stickyTimes {
		t.Errorf("%+v, %v", c, err)
	}
	for _, text := range []string{"one p1 cluster", "one p1*0 cluster a", "one p1 cluster refused", "one p1 nowhere a"} {
		if _, err := parseCrowd(strings.Fields(text)); err == nil {
			t.Errorf("%s: no error", text)
		}
	}
}

func TestParseWrites(t *testing.T) {
	for text, good := range map[string]bool{
		"1..3 in 2.5s of 500 changes in 1s": true,
		"0..0 in 1s of resync a b":          true,
		"0..0 in 1s of resync":              true,
		"3 in 1s of resync":                 false,
		"0..1 in 1 of resync":               false,
		"0..1 in 1s of changes":             false,
		"0..1 in 1s of x changes in 1s":     false,
	} {
		if _, err := parseWrites(strings.Fields(text)); (err == nil) != good {
			t.Errorf("%s: error %v", text, err)
		}
	}
}

func TestParseFlow(t *testing.T) {
	for text, good := range map[string]bool{
		"f opens p1 cluster/udp":   true,
		"f opens p1 cluster/udp a": true,
		"f gets refused":           true,
		"f gets a as client":       true,
		"f keeps":                  true,
		"f loses":                  true,
		"f gets":                   false,
		"f keeps a":                false,
		"f opens p1":               false,
		"f":                        false,
	} {
		if _, err := parseFlow(strings.Fields(text)); (err == nil) != good {
			t.Errorf("%s: error %v", text, err)
		}
	}
}
