// Package supervisor keeps a wanted set of goroutines alive. It knows nothing
// about Services.
//
// Each child has its own failure score, which decays with time, its own
// backoff, and its own ceiling after which it is parked: children cannot use up
// each other's patience. A child that stays with one message past its deadline
// is stuck: it is fenced (its lease says so, and whoever receives its output
// refuses it), its stack is captured, and a replacement is started. Go cannot
// end a goroutine from outside; the abandoned one is counted until it returns.
package supervisor
