package demo

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
)

// Rules is what the host's packet filter held at one moment, as text.
type Rules struct {
	text string
	// readable is false when we are not allowed to look; then a sandbox is not
	// able to touch either.
	readable bool
	lines    int
}

// listings are the programs that show the host's rules; those that are not
// installed have nothing to show.
var listings = [][]string{
	{"iptables-nft-save"}, {"ip6tables-nft-save"}, {"iptables-legacy-save"}, {"ip6tables-legacy-save"}, {"nft", "list", "ruleset"},
}

// changing matches what differs between two listings of the same rules: dates,
// and the counters of live traffic.
var changing = regexp.MustCompile(`(?m)^#.*$|\[\d+:\d+\]|packets \d+ bytes \d+`)

// HostRules reads the rules of the network namespace that this process runs in,
// outside any sandbox. It blocks for some commands and changes nothing.
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

// Compare gives an error when the rules have changed.
func (r Rules) Compare(after Rules) error {
	if r.text != after.text {
		return fmt.Errorf("the host's own rules have changed during the demo:\nbefore:\n%s\nafter:\n%s", r.text, after.text)
	}
	return nil
}

// String says what the comparison is worth.
func (r Rules) String() string {
	if !r.readable {
		return "its rules cannot be read, let alone changed, without root"
	}
	return fmt.Sprintf("its own rules are the same before and after (%d lines of listings)", r.lines)
}
