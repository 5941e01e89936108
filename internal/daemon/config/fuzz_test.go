// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"strings"
	"testing"
	"unicode"
)

// FuzzLoad: a file with both documents and a command line are either rejected with errors that each have a position and
// a text on one line, or accepted. Then the text that --write-config-to prints is accepted, too, and has the same
// meaning.
func FuzzLoad(f *testing.F) {
	second := "---\n" + sluiceHead
	f.Add(kubeProxyHead+"mode: nftables\n"+second+"balancing: {drainDeadline: 5ms}\n", "")
	f.Add(kubeProxyHead+"detectLocalMode: BridgeInterface\ndetectLocal: {bridgeInterface: \"eth0\\n-j DROP\"}\n", "--hostname-override= N1")
	f.Add(kubeProxyHead+"clusterCIDR: \" 010.0.0.0/8,fd00::/8\"\nnodePortAddresses: [::ffff:1.2.3.4/120]\n", "--iptables-min-sync-period=1h --vmodule=a=1")
	f.Add(kubeProxyHead+"iptables: {syncPeriod: 2562047h47m16.854775807s, masqueradeBit: 2147483648}\nbogus: \"\\e[2J\"\n", "-v=99999999999")
	f.Add("", "--proxy-mode=ipvs --ipvs-exclude-cidrs=10.0.0.0/8 --ipvs-scheduler=rr")
	f.Add("", "--ipvs-exclude-cidrs=\xff --hostname-override=\xff")
	f.Add("", "--ipvs-exclude-cidrs=\x7f\u0080\u0085\ufeff")
	f.Fuzz(func(t *testing.T, text, line string) {
		flags, err := parse(strings.Fields(line)...)
		if err != nil || len(flags.Files) > 0 {
			return
		}
		c, warnings, err := loadText(flags, text)
		for _, w := range warnings {
			checkProblem(t, Problem(w))
		}
		if err != nil {
			var invalid *InvalidError
			if !errors.As(err, &invalid) || len(invalid.Problems) == 0 || c != nil {
				t.Fatalf("%v, %v", c, err)
			}
			for _, p := range invalid.Problems {
				checkProblem(t, p)
			}
			return
		}
		checkWritten(t, c)
	})
}

// parseText is readFiles with the text of one file.
func parseText(path string, data []byte) (*file, []Warning, error) {
	f := &file{}
	problems, warnings := f.parse(path, data)
	if len(problems) > 0 {
		return nil, nil, &InvalidError{problems}
	}
	return f, append(f.decode(), warnings...), nil
}

// loadText is Load with the text of the file.
func loadText(f *Flags, text string) (*Config, []Warning, error) {
	if text == "" {
		return f.Load()
	}
	read, warnings, err := parseText("config.conf", []byte(text))
	if err != nil {
		return nil, warnings, err
	}
	return f.finish(f.fromFile(read), read, warnings)
}

func checkProblem(t *testing.T, p Problem) {
	t.Helper()
	if p.Position == (Position{}) || p.Message == "" || strings.ContainsFunc(p.String(), unicode.IsControl) {
		t.Errorf("problem %+q", p)
	}
}

// checkWritten loads what a configuration is written as.
func checkWritten(t *testing.T, c *Config) {
	t.Helper()
	text, err := c.Text()
	if err != nil {
		t.Fatal(err)
	}
	flags, _ := parse()
	back, warnings, err := loadText(flags, string(text))
	if err != nil || len(warnings) > 0 {
		t.Fatalf("the written file is rejected: %v %v\n%s", err, warnings, text)
	}
	for _, change := range Compare(c, back) {
		t.Errorf("written and loaded again: %+v\n%s", change, text)
	}
}
