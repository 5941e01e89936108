// SPDX-License-Identifier: Apache-2.0

package main

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// programs makes two files that stand for programs.
func programs(t *testing.T) (a, b string) {
	t.Helper()
	for _, file := range []*string{&a, &b} {
		*file = filepath.Join(t.TempDir(), "program")
		if err := os.WriteFile(*file, nil, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return a, b
}

func TestParseVariants(t *testing.T) {
	a, b := programs(t)
	for _, c := range []struct {
		proxy, builds string
		bare          bool
		want          []variant
	}{
		{a, b, true, []variant{{name: kubeProxy, program: a}, {name: "sluice", program: b}, {name: floor}, {name: none}}},
		{"", a + "," + b, false, []variant{{name: "sluice", program: a}, {name: "sluice-2", program: b}}},
		{b, "old=" + a + ",new=" + b + " --a --b=c", false, []variant{{name: kubeProxy, program: b}, {name: "old", program: a}, {name: "new", program: b, words: "--a --b=c"}}},
		{b, "a=" + a + ",a=" + b, false, nil},
		{b, "kube-proxy=" + a, false, nil},
		{b, "floor=" + a, false, nil},
		{b, a + "-missing", false, nil},
		{"", "", true, nil},
	} {
		got, err := parseVariants(c.proxy, c.builds, c.bare)
		if (err == nil) != (c.want != nil) || err == nil && !slices.Equal(got, c.want) {
			t.Errorf("%q, %q: %v, %v, want %v", c.proxy, c.builds, got, err, c.want)
		}
	}
}

func TestOptionFlags(t *testing.T) {
	a, b := programs(t)
	read := func(words ...string) (options, error) {
		flags := flag.NewFlagSet("packets", flag.ContinueOnError)
		parse := optionFlags(flags)
		if err := flags.Parse(append([]string{"-sluice", a, "-kube-proxy", b}, words...)); err != nil {
			t.Fatal(err)
		}
		return parse()
	}
	o, err := read("-services", "100,10000", "-backends", "iptables-nft,nftables", "-families", "ipv6", "-cases", "udp",
		"-directions", "local", "-rounds", "3", "-sample", "5ms", "-evict", "1")
	if err != nil || !slices.Equal(o.services, []int{100, 10000}) || !slices.Equal(o.backends, []string{iptablesNFT, nftables}) ||
		len(o.families) != 1 || o.families[0].String() != "IPv6" || len(o.cases) != 2 || !slices.Equal(o.directions, []string{local}) ||
		o.rounds != 3 || o.sampling.duration != 5*time.Millisecond || len(o.sampling.evict) != 1<<20 {
		t.Errorf("got %+v, %v", o, err)
	}
	if o, err := read(); err != nil || len(o.cases) != len(cases) || len(o.families) != 2 || len(o.directions) != 2 {
		t.Errorf("without flags: %+v, %v", o, err)
	}
	for _, words := range [][]string{
		{"-services", "5"}, {"-services", "many"}, {"-services", "100,"}, {"-backends", "ipvs"}, {"-families", "4"},
		{"-directions", ""}, {"-cases", "ping"}, {"-rounds", "0"}, {"-endpoints", "1"}, {"-sample", "0s"},
		{"-sluice", "nowhere"}, {"-kube-proxy", "nowhere"},
	} {
		if _, err := read(words...); err == nil {
			t.Errorf("%q: no error", words)
		}
	}
}
