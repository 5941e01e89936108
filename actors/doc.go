// Package actors gives each Service one goroutine that owns its endpoint view.
//
// Machine is the actor without its goroutine: it takes messages and says what
// to render. The loop around it (actor) only carries: it takes everything that
// waits in its mailbox, steps the machine, renders one fragment per domain and
// hands each over. Directory maps keys to mailboxes and asks a keeper to have
// someone living at each address.
//
// A message says what is, never what changed, so losing an older message about
// the same thing is always fine; a mailbox that lost detail turns stale, and
// its actor reads a snapshot again. Start, restart and overflow are that same
// path.
package actors
