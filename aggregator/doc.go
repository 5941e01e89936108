// Package aggregator is the hall where Services meet: one Aggregator per domain
// gathers the fragments that actors submit, decides with its Pacer when to
// write, keeps the ledger, hands batches to the domain's writer one at a time,
// reads the receipts, looks for culprits, and is the only author of verdicts.
//
// The decisions are pure and live in Pacer, gate and search; the loop in
// Aggregator only carries.
package aggregator
