// Package memory is an in-memory kernel for tests and simulation: it takes the
// same input as iptables-restore, refuses what the real tools and the kernel
// behind them refuse, prints what iptables-save prints, and follows a packet
// through the rules.
//
// # What it models
//
// One [Kernel] is one family of one node: the tables mangle, filter and nat with
// their built-in chains, the lists of the recent match, the node's own addresses
// and a clock. [Kernel.Trace] follows the first packet of a new connection
// through the hooks in the kernel's order; [Kernel.Outcomes] gives every way in
// which it can end, with its probability.
//
// # What it leaves out
//
// There is no connection tracking: every packet is the first of its connection
// (conntrack state NEW), so what established connections see is not answered
// here. There are no routes either; a packet says itself through which interface
// it came and would leave. Rules know only the matches and targets that Sluice
// and its tests use. Anything else is refused, never ignored: a rule that lands
// here is one whose whole meaning is understood.
//
// # Why it imports a backend
//
// A backend does not import another one. This package is the one exception: the
// contract [iptables.Tool] speaks of [iptables.Table] and [iptables.ToolError],
// and a kernel that can stand in for the tools has to use these very types. It
// uses nothing else of that package.
package memory
