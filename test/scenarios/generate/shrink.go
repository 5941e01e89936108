// SPDX-License-Identifier: Apache-2.0

package generate

import (
	"slices"
	"strings"

	"github.com/sluice-proxy/sluice/test/scenarios/script"
)

// Fails plays a scenario and returns what did not hold, or nil.
type Fails func(script.Scenario) error

// shrinker takes away from a draft what the failure does not need.
type shrinker struct {
	fails Fails
	// left is how many more attempts may be made.
	left int
	// best is the smallest scenario that is known to fail, and why how it does.
	best script.Scenario
	why  error
}

// Shrink plays the scenario of a seed and, if it fails, looks in at most so many
// attempts for the smallest one that still does. It returns that one and how it
// fails; without a failure, nil and the scenario of the seed. A broken generator is
// an error of kind err.
func Shrink(seed uint64, mode string, fails Fails, attempts int) (s script.Scenario, why, err error) {
	d := newGenerator(seed, mode).draft()
	s, err = d.annotate()
	if err != nil {
		return s, nil, err
	}
	why = fails(s)
	if why == nil || attempts <= 0 {
		return s, why, nil
	}
	k := &shrinker{fails: fails, left: attempts, best: s, why: why}
	for before := -1; before != len(d.text(d.lines)) && k.left > 0; {
		before = len(d.text(d.lines))
		d = k.dropWords(k.dropLines(d))
	}
	return k.best, k.why, nil
}

// still reports whether a draft fails. One that asks for nothing, or that says what
// cannot be said, does not.
func (k *shrinker) still(d draft) bool {
	s, err := d.annotate()
	if err != nil || k.left <= 0 {
		return false
	}
	k.left--
	why := k.fails(s)
	if why != nil {
		k.best, k.why = s, why
	}
	return why != nil
}

// dropLines drops lines, many at a time first.
func (k *shrinker) dropLines(d draft) draft {
	for size := len(d.lines) / 2; size > 0; size /= 2 {
		// The end goes first: what comes after a failure is never needed.
		for to := len(d.lines); to > 0; to -= size {
			to = min(to, len(d.lines))
			if smaller := d.without(max(0, to-size), to); k.still(smaller) {
				d = smaller
			}
		}
	}
	return d
}

// dropWords drops what lines say beside the most needful: fields, endpoints, and
// the conditions and hints of an endpoint.
func (k *shrinker) dropWords(d draft) draft {
	for at, line := range d.lines {
		if isQuestion(line) {
			continue
		}
		for i := len(strings.Fields(line)) - 1; i > 0; i-- {
			words := strings.Fields(d.lines[at])
			for _, shorter := range shorter(words, i) {
				smaller := d
				smaller.lines = slices.Clone(d.lines)
				smaller.lines[at] = strings.Join(shorter, " ")
				if k.still(smaller) {
					d = smaller
					break
				}
			}
		}
	}
	return d
}

// shorter returns a line without one word, or with less of it.
func shorter(words []string, i int) [][]string {
	all := [][]string{slices.Delete(slices.Clone(words), i, i+1)}
	if name, _, ok := strings.Cut(words[i], "("); ok {
		plain := slices.Clone(words)
		plain[i] = name
		all = append(all, plain)
	}
	return all
}
