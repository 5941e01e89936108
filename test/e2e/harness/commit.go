package harness

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Commit is one transaction of nf_tables that a [Monitor] saw.
type Commit struct {
	// Generation is the kernel's number of it.
	Generation uint32
	// Program is the first 15 characters of the name of the program that wrote it.
	Program string
	// Changes are a verb, a kind of object and where it is, such as "add rule ip nat OUTPUT". An element
	// is followed by its key in hexadecimal, and by its comment if it has one: "delete element ip
	// kube-proxy frontends ac1e0005 06000000 00500000 default/web:tcp".
	Changes []string
}

// Tables returns what was written to, each once, such as "ip kube-proxy".
func (c Commit) Tables() []string {
	var tables []string
	for _, change := range c.Changes {
		words := strings.Fields(change)
		tables = append(tables, words[2]+" "+words[3])
	}
	slices.Sort(tables)
	return slices.Compact(tables)
}

func (c Commit) String() string {
	return fmt.Sprintf("generation %d by %s:\n\t%s", c.Generation, c.Program, strings.Join(c.Changes, "\n\t"))
}

// Changes returns the changes of all commits that the expression matches.
func Changes(commits []Commit, matching *regexp.Regexp) []string {
	var found []string
	for _, commit := range commits {
		for _, change := range commit.Changes {
			if matching.MatchString(change) {
				found = append(found, change)
			}
		}
	}
	return found
}
