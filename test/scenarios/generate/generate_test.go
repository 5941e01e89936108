// SPDX-License-Identifier: Apache-2.0

package generate

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
)

// TestGenerator_SameSeedSameText: the same seed always generates the same scenario, and two seeds generate different
// ones.
func TestGenerator_SameSeedSameText(t *testing.T) {
	for seed := range uint64(50) {
		for _, mode := range []string{"iptables", "nftables"} {
			var texts [2]string
			for i := range texts {
				s, err := Scenario(seed, mode)
				if err != nil {
					t.Fatal(err)
				}
				texts[i] = Text(s)
			}
			if texts[0] != texts[1] {
				t.Errorf("mode %s:\n%s\n\n%s", mode, texts[0], texts[1])
			}
		}
	}
	one, _ := Scenario(1, "nftables")
	two, _ := Scenario(2, "nftables")
	if Text(one) == Text(two) {
		t.Error("two seeds make the same scenario")
	}
}

// covered are forms of lines, each with the least share of questions in a thousand,
// or the least number of statements, that has to have it.
var covered = []struct {
	form  string
	least int
}{
	{`-> .* => .*[a-z0-9] as client$`, 100},
	{`-> .* => .*[a-z0-9] as node$`, 100},
	{`-> .* => [a-z0-9:]+ [a-z0-9:]+ .*as`, 50},
	{`-> .* => refused$`, 50},
	{`-> .* => silence$`, 20},
	{`-> .* => beyond`, 20},
	{`^ipv[46] `, 20},
	{`-> .*\.cluster:.* => .*as`, 100},
	{`-> (node|second):30.* => .*as`, 50},
	{`-> (vip|vip2|external):.* => [acp].*as`, 50},
	{`^(p1|a|a2) -> .*/udp => .*as`, 10},
	{`^(x|y) -> .* as client$`, 10},
	{`^p2 -> `, 20},
	{`^node -> .* as node$`, 20},
}

// statements are forms of which every hundred seeds have some.
var statements = []string{
	`^flag --masquerade-all`, `^flag --nodeport-addresses`, `^flag --detect-local-mode=InterfaceNamePrefix`, `^flag --cluster-cidr=unset`,
	`^node zone=zb`, `^delete service`, `^delete slice`, `^slice two`, `itp=Local`, `etp=Local`, `affinity=`, `ranges=allowed`, `external=node`,
	`ingress=.*Proxy`, `/UDP`, `ports=:80`, `ports=nil`, `families=`, `zones=`, `nodes=`, `terminating=true`, `ready=false`,
}

// TestGenerator_Coverage: generated scenarios contain every kind of statement. Otherwise a run without failures would
// prove nothing.
func TestGenerator_Coverage(t *testing.T) {
	const seeds = 60
	for _, mode := range []string{"iptables", "nftables"} {
		var questions, others []string
		for seed := range uint64(seeds) {
			s, err := Scenario(seed, mode)
			if err != nil {
				t.Fatal(err)
			}
			for _, line := range s.Lines {
				if strings.Contains(line.Text, arrow) {
					questions = append(questions, line.Text)
				} else {
					others = append(others, line.Text)
				}
			}
			if n := len(s.Lines); n < 15 {
				t.Errorf("mode %s, seed %d: only %d lines", mode, seed, n)
			}
		}
		for _, c := range covered {
			if share := 1000 * count(questions, c.form) / len(questions); share < c.least {
				t.Errorf("mode %s: %d of 1000 questions have %s, want %d or more", mode, share, c.form, c.least)
			}
		}
		for _, form := range statements {
			if count(others, form) == 0 {
				t.Errorf("mode %s: no statement has %s", mode, form)
			}
		}
		t.Log(mode, summary(questions), len(others), "statements")
	}
}

func count(lines []string, form string) int {
	n := 0
	for pattern := regexp.MustCompile(form); len(lines) > 0; lines = lines[1:] {
		if pattern.MatchString(lines[0]) {
			n++
		}
	}
	return n
}

func summary(questions []string) string {
	text := fmt.Sprint(len(questions), " questions")
	for _, c := range covered {
		text += fmt.Sprintf("; %d %s", count(questions, c.form), c.form)
	}
	return text
}
