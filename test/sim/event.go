package sim

import (
	"fmt"
	"strings"
)

// verb says what an event does. Its text is the name of the constant, so that a
// printed event is Go.
type verb string

// What the API says. N is the number of a Service, M that of one of its slices.
const (
	setService    verb = "setService"
	removeService verb = "removeService"
	setSlice      verb = "setSlice"
	removeSlice   verb = "removeSlice"
	// giveSlice lets a slice name another Service as its owner, shape says
	// which.
	giveSlice verb = "giveSlice"
	setNode   verb = "setNode"
	// setHosts changes the addresses of the host's interfaces.
	setHosts verb = "setHosts"
)

// Trouble. N is a Service or a family, M a number of times.
const (
	// poisonService sets a Service whose rules the kernel refuses, curseService
	// one whose rendering panics. M is the number of the trouble, unique in a
	// scenario.
	poisonService verb = "poisonService"
	curseService  verb = "curseService"
	// cure ends the trouble of all Services for good.
	cure verb = "cure"
	// failTool makes commands fail, slowTool makes them slow; shape says how.
	failTool verb = "failTool"
	slowTool verb = "slowTool"
	// panicActor and hangActor strike at the next messages of a Service, or of
	// the node's own actor when N is negative.
	panicActor verb = "panicActor"
	hangActor  verb = "hangActor"
	// freeActors lets all hanging actors go on.
	freeActors verb = "freeActors"
)

// What somebody else does to the kernel of family N.
const (
	flush       verb = "flush"
	deleteChain verb = "deleteChain"
	deleteRule  verb = "deleteRule"
	// plantRule and plantChain add what is none of the proxy's business and has
	// to survive.
	plantRule  verb = "plantRule"
	plantChain verb = "plantChain"
	// meddle puts a rule into a chain of the proxy, litter leaves a chain with
	// one of its names; both have to go.
	meddle verb = "meddle"
	litter verb = "litter"
)

// What the simulation does.
const (
	// pause waits for shape milliseconds.
	pause verb = "pause"
	// quiet waits until all is settled, and checks everything.
	quiet verb = "quiet"
	// restart stops the proxy and starts another.
	restart verb = "restart"
)

// nodeActor is the N of the node's own actor.
const nodeActor = -1

// event is one thing that happens. All details follow from the shape, so that an
// event means the same wherever it stands in a list.
type event struct {
	do    verb
	n, m  int
	shape uint64
}

// String gives the event as an element of a Go literal.
func (e event) String() string {
	return fmt.Sprintf("{%s, %d, %d, %#x}", e.do, e.n, e.m, e.shape)
}

// literal gives events as Go, one per line.
func literal(events []event) string {
	var b strings.Builder
	b.WriteString("[]event{\n")
	for _, e := range events {
		fmt.Fprintf(&b, "\t%v,\n", e)
	}
	b.WriteString("}")
	return b.String()
}
