// SPDX-License-Identifier: Apache-2.0

// Package plural writes numbers with nouns, such as "2 nodes", in texts for people.
package plural

import (
	"fmt"
	"strings"
)

// Of returns a number and a noun, which gets its plural unless the number is 1.
func Of[N int | uint64](n N, noun string) string {
	last := len(noun) - 1
	switch {
	case n == 1:
		return "1 " + noun
	case noun[last] == 'y' && !strings.ContainsRune("aeou", rune(noun[last-1])):
		return fmt.Sprintf("%d %sies", n, noun[:last])
	default:
		return fmt.Sprintf("%d %ss", n, noun)
	}
}
