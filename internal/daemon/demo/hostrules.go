package demo

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
)

// Rules are the rules of the host's packet filter at one moment, as text.
type Rules struct {
	text string
	// readable is false if this process may not read them; it cannot change them
	// either then.
	readable bool
	lines    int
}

// listings are the programs that list the host's rules; if one is not installed, it has
// nothing to list.
var listings = [][]string{
	{"iptables-nft-save"}, {"ip6tables-nft-save"}, {"iptables-legacy-save"}, {"ip6tables-legacy-save"}, {"nft", "list", "ruleset"},
}

// changing matches what differs between two listings of the same rules: dates,
// and the counters of live traffic.
var changing = regexp.MustCompile(`(?m)^#.*$|\[\d+:\d+\]|packets \d+ bytes \d+`)

// HostRules reads the rules of this process's network namespace, outside any sandbox. It
// runs commands, and changes nothing.
func HostRules(ctx context.Context) (Rules, error) {
	if os.Geteuid() != 0 {
		return Rules{}, nil
	}
	var all bytes.Buffer
	for _, words := range listings {
		if _, err := exec.LookPath(words[0]); err != nil {
			continue
		}
		out, err := exec.CommandContext(ctx, words[0], words[1:]...).Output()
		if err != nil {
			return Rules{}, fmt.Errorf("read the host's rules: %v: %w", words, err)
		}
		fmt.Fprintf(&all, "%s\n%s\n", words[0], out)
	}
	text := changing.ReplaceAllString(all.String(), "")
	return Rules{text: text, readable: true, lines: bytes.Count([]byte(text), []byte("\n"))}, nil
}

// Compare returns an error if the rules have changed.
func (r Rules) Compare(after Rules) error {
	if r.text != after.text {
		return fmt.Errorf("the host's own rules changed during the demo:\nbefore:\n%s\nafter:\n%s", r.text, after.text)
	}
	return nil
}

// String says what the comparison proves.
func (r Rules) String() string {
	if !r.readable {
		return "its rules cannot be read or changed without root"
	}
	return fmt.Sprintf("its own rules are the same before and after (%d lines of listings)", r.lines)
}
