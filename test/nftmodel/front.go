// SPDX-License-Identifier: Apache-2.0

package nftmodel

// front are ways of a packet that have to go on, in the order of their coming.
// Those that have come to the same state are one.
type front struct {
	list []branch
	// at says where in the list a state is, once there are many.
	at map[state]int
	// taken counts those at the start of the list that are gone.
	taken int
}

// indexedFrom is the number of ways from which an index is faster than a search.
const indexedFrom = 16

func (f *front) len() int { return len(f.list) - f.taken }

// add puts a way in line.
func (f *front) add(b branch) {
	if i := f.find(&b.state); i >= 0 {
		f.list[i].probability += b.probability
		return
	}
	if f.at != nil {
		f.at[b.state] = len(f.list)
	}
	f.list = append(f.list, b)
}

// find returns where a state is in line, or -1.
func (f *front) find(s *state) int {
	if f.at == nil && f.len() < indexedFrom {
		for i := f.taken; i < len(f.list); i++ {
			if f.list[i].state == *s {
				return i
			}
		}
		return -1
	}
	if f.at == nil {
		f.at = make(map[state]int)
		for i := f.taken; i < len(f.list); i++ {
			f.at[f.list[i].state] = i
		}
	}
	if i, ok := f.at[*s]; ok {
		return i
	}
	return -1
}

// take returns the first in line.
func (f *front) take() branch {
	b := f.list[f.taken]
	if f.at != nil {
		delete(f.at, b.state)
	}
	f.taken++
	if f.len() == 0 {
		f.list, f.taken = f.list[:0], 0
	}
	return b
}

// branches returns all that are in line.
func (f *front) branches() []branch { return f.list[f.taken:] }
