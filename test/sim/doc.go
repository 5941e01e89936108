// Package sim runs the whole proxy in one process, on virtual time, against
// kernels in memory, while things happen to it that a seed has chosen: Services
// and endpoints come and go, actors panic and hang, writes are refused, slow,
// cut in half or of unknown outcome, and somebody else meddles with the rules.
//
//	scenario ──► world ──► proxy ──► memory.Kernel ×2
//	   (events)    │                      │
//	               └──► cluster ──► reference ──► equal? packets? bounds?
//
// After each quiet point the kernels must hold what the reference says, computed
// from the cluster's state alone, and packets must end where the Services' views
// send them. A scenario is a list of plain events: a failing one is printed
// after it was shrunk, in a form that can be pasted into regression_test.go.
//
// What is not simulated: established connections, processes and sockets. The
// order in which goroutines run is the scheduler's, so a seed repeats the events
// and not every interleaving.
package sim
