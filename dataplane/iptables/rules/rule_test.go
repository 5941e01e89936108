// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// rendered calls check with each rule of the renderer's golden files.
func rendered(t testing.TB, check func(line string)) {
	t.Helper()
	files, err := filepath.Glob("../render/testdata/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if rule, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "  "); ok && rule != "(empty)" {
				found++
				check(rule)
			}
		}
	}
	if found < 200 {
		t.Fatalf("%d rules in %d golden files, want 200 or more", found, len(files))
	}
}

// foreign are rules of other programs and releases, as iptables-save prints them.
var foreign = []string{
	"",
	"-j ACCEPT",
	`-s 10.0.0.0/8 ! -d 10.0.0.0/8 -i eth0 -o cni+ -p tcp -f -m multiport --dports 80,443 -m tcp ! --tcp-flags FIN,SYN SYN -j LOG --log-prefix "it\'s \"x\" \\ " --log-level 7`,
	`-m comment --comment "-j DROP" -m mark ! --mark 0x2/0x2 -g cali-from-wl`,
	"-m comment --comment -j -j RETURN",
	"-m set ! --match-set cali40masq dst,src -m recent --update --seconds 5 --name x --mask 255.255.255.255 --rsource -j TPROXY --on-port 0 --on-ip 0.0.0.0 --tproxy-mark 0x1/0x1",
	`-m string --string "a b" --algo bm --to 65535 -m time --timestart 08:00:00 --weekdays Mon,Tue -j NFQUEUE --queue-num 0 --queue-bypass`,
	`-m comment --comment "never closed`,
	"! ! -m -j X ! -j -g",
	"-j",
}

// TestParse_TextRoundTrip: the text of a parsed rule is the text that was parsed.
func TestParse_TextRoundTrip(t *testing.T) {
	check := func(line string) {
		if got := Parse(line).String(); got != line {
			t.Errorf("got  %s\nwant %s", got, line)
		}
	}
	rendered(t, check)
	for _, line := range foreign {
		check(line)
	}
}

// TestTargetAndComment_AgreeWithParse: TargetOf and CommentOf find the same target and comment as Parse, without
// allocations.
func TestTargetAndComment_AgreeWithParse(t *testing.T) {
	check := func(line string) {
		rule := Parse(line)
		comment := ""
		for _, m := range rule.Matches {
			if o := m.Option("--comment"); o != nil && comment == "" {
				comment = o.Arg(0)
			}
		}
		if got := TargetOf(line); got != rule.Target.Name {
			t.Errorf("%s: target %q, want %q", line, got, rule.Target.Name)
		}
		if got := CommentOf(line); got != comment {
			t.Errorf("%s: comment %q, want %q", line, got, comment)
		}
	}
	rendered(t, check)
	for _, line := range foreign[:8] {
		check(line)
	}
	if allocs := testing.AllocsPerRun(10, func() { TargetOf(foreign[4]); CommentOf(foreign[4]) }); allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
}

func TestParse(t *testing.T) {
	rule := Parse(`! -s 10.0.0.0/8 -p tcp -m tcp --dport 80:90 -m conntrack ! --ctstate NEW -m comment --comment "a \"b\"" -g KUBE-X`)
	if len(rule.Matches) != 5 || rule.Target.Name != "KUBE-X" || !rule.Target.Goto {
		t.Fatalf("%+v", rule)
	}
	source, ports, state := rule.Matches[0], rule.Matches[2], rule.Matches[3]
	if prefix, err := source.Options[0].Prefix(); err != nil || prefix.String() != "10.0.0.0/8" || !source.Options[0].Not {
		t.Errorf("source %+v, %v", source, err)
	}
	if low, high, err := ports.Option("--dport").Ports(); err != nil || low != 80 || high != 90 {
		t.Errorf("ports %d to %d, %v", low, high, err)
	}
	if o := state.Option("--ctstate"); state.Module != "conntrack" || o == nil || !o.Not || o.Arg(0) != "NEW" {
		t.Errorf("state %+v", state)
	}
	if o := rule.Matches[4].Option("--comment"); o.Arg(0) != `a "b"` || o.Arg(1) != "" {
		t.Errorf("comment %+v", o)
	}
}

func TestValues(t *testing.T) {
	target := Parse("-j MARK --set-xmark 0x4000/0x0").Target
	if value, mask, err := target.Option("--set-xmark").Mark(); err != nil || value != 0x4000 || mask != 0 {
		t.Errorf("mark %#x/%#x, %v", value, mask, err)
	}
	if _, mask, err := (&Option{Args: []string{"1"}}).Mark(); err != nil || mask != 0xffffffff {
		t.Errorf("mask %#x, %v", mask, err)
	}
	if _, _, err := (&Option{Args: []string{"a:b"}}).Ports(); err == nil {
		t.Error("a port named a")
	}
	if _, err := target.DNAT(); err == nil {
		t.Error("MARK has a destination")
	}
	dnat := Parse("-j DNAT --to-destination [fd00::1]:80").Target
	if to, err := dnat.DNAT(); err != nil || to.String() != "[fd00::1]:80" {
		t.Errorf("to %s, %v", to, err)
	}
}

func TestWords(t *testing.T) {
	for rule, want := range map[string][]string{
		``:                           nil,
		`-j A`:                       {"-j", "A"},
		`  -s  1.1.1.1/32 `:          {"-s", "1.1.1.1/32"},
		`--comment "a b" -j A`:       {"--comment", "a b", "-j", "A"},
		`--comment ""`:               {"--comment", ""},
		`--comment "it\'s \"x\" \\"`: {"--comment", `it's "x" \`},
		`--comment "never closed`:    {"--comment", "never closed"},
		`--comment "ends with \`:     {"--comment", `ends with \`},
	} {
		if got := Words(rule); !slices.Equal(got, want) {
			t.Errorf("Words(%q) = %q, want %q", rule, got, want)
		}
	}
}

// TestAppendPrefix compares prefixes with what iptables-save and ip6tables-save 1.8.9 print in both variants. The
// renderer's kernel test compares them with the tools themselves.
func TestAppendPrefix(t *testing.T) {
	for _, test := range []struct{ prefix, want string }{
		{"10.1.2.3/32", "10.1.2.3/32"},
		{"10.1.2.3/8", "10.0.0.0/8"},
		{"fd00::1/128", "fd00::1/128"},
		{"1:0:2::/48", "1:0:2::/48"},
		{"0:1:2:3:4:5:6:7/128", "0:1:2:3:4:5:6:7/128"},
		{"::ffff:0:0/100", "::ffff:0.0.0.0/100"},
		{"::102:304/128", "::1.2.3.4/128"},
		{"::1:0/128", "::0.1.0.0/128"},
		{"::1/128", "::1/128"},
		{"::/1", "::/1"},
	} {
		if got := string(AppendPrefix(nil, netip.MustParsePrefix(test.prefix))); got != test.want {
			t.Errorf("%s is printed as %q, want %q", test.prefix, got, test.want)
		}
	}
}

// FuzzParse: the text of a parsed rule contains the words of the rule, and is parsed as the same rule.
func FuzzParse(f *testing.F) {
	rendered(f, func(line string) { f.Add(line) })
	for _, line := range foreign {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		text := Parse(line).String()
		if want := strings.Join(split(line), " "); text != want {
			t.Errorf("%q is %q, want %q", line, text, want)
		}
		if again := Parse(text).String(); again != text {
			t.Errorf("%q is %q when it is read again", text, again)
		}
	})
}

// FuzzQuoted: AppendQuoted writes any text as one word that is read back as the same text.
func FuzzQuoted(f *testing.F) {
	f.Add("ns/web:http", " cluster IP", "KUBE-SVC-A")
	f.Add(`a"b\c'd`, `-j DROP`, "KUBE-SEP-B")
	f.Add("", "\\", "")
	f.Add("-", "j", "KUBE-SEP-B")
	f.Fuzz(func(t *testing.T, subject, after, target string) {
		if strings.ContainsAny(target, " \"\n") || target == "" {
			return
		}
		rule := "-m comment --comment " + string(AppendQuoted(nil, subject, after)) + " -j " + target
		want := []string{"-m", "comment", "--comment", subject + after, "-j", target}
		if got := Words(rule); !slices.Equal(got, want) {
			t.Errorf("%q is cut into %q", rule, got)
		}
		if got := TargetOf(rule); got != target {
			t.Errorf("%q leads to %q", rule, got)
		}
		if got := CommentOf(rule); got != subject+after {
			t.Errorf("%q has the comment %q", rule, got)
		}
	})
}
