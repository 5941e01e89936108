// SPDX-License-Identifier: Apache-2.0

package nftmodel

import "golang.org/x/sys/unix"

// jumpsMax is NFT_JUMP_STACK_SIZE.
const jumpsMax = 16

// validate rejects tables in which packets could loop, or reach expressions that are not
// allowed at their hook.
func (b *batch) validate() error {
	for t := range b.suspicious {
		if b.kernel.tables[t.tableKey] != t {
			continue
		}
		for _, c := range t.order {
			if c.base == nil {
				continue
			}
			v := validation{from: c.base, reached: make(map[*chain]int)}
			if err := v.chain(c, 0); err != nil {
				return err
			}
		}
	}
	return nil
}

// validation is the walk from one base chain.
type validation struct {
	from *base
	// reached holds the largest number of jumps by which a chain was reached, and
	// one more.
	reached map[*chain]int
}

func (v *validation) chain(c *chain, jumps int) error {
	if jumps == jumpsMax {
		return refusef(unix.EMLINK, "more than %d jumps to chain %s", jumpsMax, c.name)
	}
	if v.reached[c] > jumps {
		return nil
	}
	v.reached[c] = jumps + 1
	for _, r := range c.rules {
		for _, e := range r.exprs {
			if err := v.expr(e, jumps); err != nil {
				return err
			}
		}
	}
	return nil
}

func (v *validation) expr(e expr, jumps int) error {
	switch e := e.(type) {
	case placed:
		return e.allowed(v.from)
	case *immediateVerdict:
		if e.chain != nil {
			return v.chain(e.chain, jumps+1)
		}
	case *lookup:
		if !e.set.isVerdict() {
			return nil
		}
		for _, element := range e.set.elements {
			if to := element.verdict.chain; to != nil {
				if err := v.chain(to, jumps+1); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
