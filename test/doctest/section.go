// SPDX-License-Identifier: Apache-2.0

package doctest

import (
	"os"
	"regexp"
	"strings"
)

// Section is one heading of a page with the ```sh blocks below it.
type Section struct {
	Heading string
	Blocks  []string
}

var (
	headings = regexp.MustCompile(`(?m)^#+ (.*)$`)
	shBlocks = regexp.MustCompile("(?ms)^```sh\n(.*?)^```$")
)

// Sections returns the parts of a page that have such blocks, in order.
func Sections(page string) ([]Section, error) {
	text, err := os.ReadFile(page)
	if err != nil {
		return nil, err
	}
	// A line of a command may begin like a heading, so blocks are hidden while headings are found.
	hidden := shBlocks.ReplaceAllStringFunc(string(text), func(block string) string {
		return strings.ReplaceAll(block, "#", "_")
	})
	var all []Section
	at := headings.FindAllStringSubmatchIndex(hidden, -1)
	for i, match := range at {
		end := len(text)
		if i+1 < len(at) {
			end = at[i+1][0]
		}
		s := Section{Heading: string(text[match[2]:match[3]])}
		for _, block := range shBlocks.FindAllStringSubmatch(string(text[match[1]:end]), -1) {
			s.Blocks = append(s.Blocks, block[1])
		}
		if len(s.Blocks) > 0 {
			all = append(all, s)
		}
	}
	return all, nil
}
