package nft

// front are ways of a packet that have to go on, in the order of their coming.
// Those that have come to the same state are one.
type front struct {
	list []branch
	at   map[state]int
	// taken counts those at the start of the list that are gone.
	taken int
}

func newFront() *front { return &front{at: make(map[state]int)} }

func (f *front) len() int { return len(f.list) - f.taken }

// add puts a way in line.
func (f *front) add(b branch) {
	if i, ok := f.at[b.state]; ok {
		f.list[i].probability += b.probability
		return
	}
	f.at[b.state] = len(f.list)
	f.list = append(f.list, b)
}

// take gives the first in line.
func (f *front) take() branch {
	b := f.list[f.taken]
	delete(f.at, b.state)
	f.taken++
	return b
}

// branches gives all that are in line.
func (f *front) branches() []branch { return f.list[f.taken:] }
