// Package ledger keeps, object by object, what is wanted in the kernel against
// what is known to be there, for one domain. It is pure bookkeeping: no
// goroutine, no lock, no clock; its owner is the domain's aggregator.
//
// A failed write changes nothing that is wanted, so nothing is ever lost by
// failing; an unknown outcome forgets what is known about the objects
// concerned, so the next plan writes them again.
//
// Two Services that want the same object hold claims: the older Service wins,
// then the smaller key. The loser's object is shadowed and appears by itself
// when the winner leaves. The outcome does not depend on the order of arrival.
// Where that costs a Service a frontend, Shadows tells. What goes with an object
// (dataplane.Naming.Lead) is claimed by nobody who is outranked at that object, so that
// the endpoints and source ranges of two Services never mix.
package ledger
