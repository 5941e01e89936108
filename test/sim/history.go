package sim

// A history is a way to come to a state of the cluster: a list of what the API
// said. Those made here from one original all end in the same state.

// object is what an event is about.
type object struct {
	do   verb
	n, m int
}

func objectOf(e event) object {
	switch e.do {
	case setService, removeService:
		return object{setService, e.n, 0}
	case setSlice, giveSlice, removeSlice:
		return object{setSlice, e.n, e.m}
	default:
		return object{do: e.do}
	}
}

// rewrites are the ways to tell a history differently.
var rewrites = map[string]func(dice, []event) []event{
	"original":  func(_ dice, h []event) []event { return h },
	"shuffled":  shuffled,
	"doubled":   doubled,
	"repeated":  func(_ dice, h []event) []event { return join(h, h) },
	"merged":    merged,
	"split":     split,
	"backwards": func(d dice, h []event) []event { return join(backwards(h), merged(d, h)) },
	"emptied":   func(_ dice, h []event) []event { return join(h, removals(h), h) },
}

func join(parts ...[]event) (all []event) {
	for _, part := range parts {
		all = append(all, part...)
	}
	return all
}

// shuffled mixes the objects; each keeps the order of its own events.
func shuffled(d dice, h []event) []event {
	own := map[object][]event{}
	for _, e := range h {
		own[objectOf(e)] = append(own[objectOf(e)], e)
	}
	out := make([]event, len(h))
	for i, j := range d.Perm(len(h)) {
		o := objectOf(h[j])
		out[i], own[o] = own[o][0], own[o][1:]
	}
	return out
}

func doubled(_ dice, h []event) (out []event) {
	for _, e := range h {
		out = append(out, e, e)
	}
	return out
}

// merged leaves the last event of each object, in any order.
func merged(d dice, h []event) (out []event) {
	last := map[object]int{}
	for i, e := range h {
		last[objectOf(e)] = i
	}
	for _, i := range d.Perm(len(h)) {
		if last[objectOf(h[i])] == i {
			out = append(out, h[i])
		}
	}
	return out
}

// split takes a step in between to each event.
func split(d dice, h []event) (out []event) {
	for _, e := range h {
		between := e
		between.shape = d.Uint64N(1 << 16)
		if d.percent(30) {
			between = removal(e)
		}
		out = append(out, between, e)
	}
	return out
}

func backwards(h []event) (out []event) {
	for i := range h {
		out = append(out, h[len(h)-1-i])
	}
	return out
}

func removals(h []event) (out []event) {
	for _, e := range h {
		out = append(out, removal(e))
	}
	return out
}

// removal gives an event that removes what another is about; what is always
// there is changed.
func removal(e event) event {
	switch e.do {
	case setService, removeService:
		e.do = removeService
	case setSlice, giveSlice, removeSlice:
		e.do = removeSlice
	default:
		e.shape++
	}
	return e
}

// paused puts pauses into a history, as a habit does.
func paused(d dice, h []event, as habit) []event {
	g := &generator{dice: d, habit: as}
	for _, e := range h {
		g.events = append(g.events, e)
		g.rest()
	}
	return g.events
}
