package sim

// services is the largest number of Services in a scenario.
const services = 30

// habit is how a scenario mixes events and pauses.
type habit uint8

const (
	// patient pauses after each event.
	patient habit = iota
	// bursts pause after some events.
	bursts
	// hasty never pauses between two quiet points.
	hasty
	habits
)

// weight is how often an event is chosen, relative to the others.
type weight struct {
	do    verb
	often int
}

// peace is what the API says all day.
var peace = []weight{
	{setService, 14}, {removeService, 5}, {setSlice, 30}, {removeSlice, 5}, {giveSlice, 2},
	{setNode, 2}, {setHosts, 2},
}

// unrest is what else happens.
var unrest = []weight{
	{poisonService, 3}, {curseService, 2}, {cure, 1},
	{failTool, 6}, {slowTool, 3},
	{panicActor, 4}, {hangActor, 3}, {freeActors, 2},
	{flush, 1}, {deleteChain, 2}, {deleteRule, 3}, {plantRule, 2}, {plantChain, 1}, {meddle, 2}, {litter, 1},
	{restart, 1}, {quiet, 2},
}

// generator makes scenarios.
type generator struct {
	dice
	habit    habit
	services int
	// chances is the table that verbs are drawn from.
	chances []weight
	total   int
	trouble int
	events  []event
}

// generate gives the scenario of a seed.
func generate(seed uint64) scenario {
	g := &generator{dice: newDice(seed, 79)}
	g.habit = habit(g.IntN(int(habits)))
	g.services = 8 + g.IntN(services-8+1)
	g.chances = peace
	if g.percent(90) {
		g.chances = append(append([]weight{}, peace...), unrest...)
	}
	for _, w := range g.chances {
		g.total += w.often
	}
	g.populate()
	for range 40 + g.IntN(80) {
		g.add(g.verb())
		g.rest()
	}
	return scenario{seed: seed, events: g.events}
}

// populate makes a cluster that was there before the proxy.
func (g *generator) populate() {
	if g.percent(80) {
		g.emit(setNode, 0, 0)
	}
	for n := range g.services {
		if g.percent(70) {
			g.emit(setService, n, 0)
		}
		for m := range 1 + g.IntN(3) {
			g.emit(setSlice, n, m)
		}
	}
}

func (g *generator) verb() verb {
	at := g.IntN(g.total)
	for _, w := range g.chances {
		if at -= w.often; at < 0 {
			return w.do
		}
	}
	return quiet // cannot be: the weights sum to the total
}

func (g *generator) emit(do verb, n, m int) {
	// Shapes are small so that lists are easy to read.
	g.events = append(g.events, event{do, n, m, g.Uint64N(1 << 16)})
}

// add chooses what an event is about.
func (g *generator) add(do verb) {
	switch do {
	case setService, removeService:
		g.emit(do, g.IntN(g.services), 0)
	case setSlice, removeSlice, giveSlice:
		g.emit(do, g.IntN(g.services), g.IntN(3))
	case poisonService, curseService:
		g.trouble++
		g.emit(do, g.IntN(g.services), g.trouble)
	case panicActor, hangActor:
		g.emit(do, g.IntN(g.services+1)-1, 1+g.IntN(2))
	case failTool, slowTool:
		g.emit(do, g.IntN(2), 1+g.IntN(3))
	default: // those about a family, and those about nothing
		g.emit(do, g.IntN(2), 0)
	}
}

// rest pauses as the habit says.
func (g *generator) rest() {
	odds := [...]int{patient: 100, bursts: 15, hasty: 0}[g.habit]
	if g.percent(odds) {
		// From less than a write to more than an audit interval.
		g.events = append(g.events, event{pause, 0, 0, uint64(1) << g.IntN(17)})
	}
}
