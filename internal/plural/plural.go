// Package plural writes numbers of things in texts for people.
package plural

import "fmt"

// Of returns a number and a noun, which gets an s unless the number is 1.
func Of[N int | uint64](n N, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
