// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"errors"
	"os"
	"slices"
	"testing"
)

func TestChoose(t *testing.T) {
	names := []string{"tcp-1", "tcp-10", "udp"}
	also := func(word string) bool { return word == "other" }
	for words, want := range map[string][]string{
		"": names, "tcp": {"tcp-1", "tcp-10"}, "tcp-1": {"tcp-1"}, "udp,tcp-10,tcp": {"udp", "tcp-10", "tcp-1"}, "other": {"other"},
	} {
		if got, err := Choose(words, names, also); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %v, %v; want %v", words, got, err, want)
		}
	}
	for _, words := range []string{"icmp", "tcp,", ","} {
		if got, err := Choose(words, names, also); err == nil {
			t.Errorf("%q: %v, want an error", words, got)
		}
	}
}

// TestInFolder: the folder remains only if the measurement fails.
func TestInFolder(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	for _, want := range []error{nil, errors.New("failed")} {
		folder := ""
		err := InFolder("test", func(dir string) error { folder = dir; return want })
		if _, stat := os.Stat(folder); !errors.Is(err, want) || (stat == nil) != (want != nil) {
			t.Errorf("%v: %v, folder %v", want, err, stat)
		}
	}
}
