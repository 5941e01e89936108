// Package dataplane is the language between actors, aggregator and kernel
// writers: objects, fragments, batches, receipts and verdicts, and the small
// contracts that a backend fulfils (Renderer, Naming, Writer, Layout, Watcher). It
// knows no backend: what an identity means, the domain's Naming says.
//
// The values are immutable once handed over. The package itself does nothing to
// a kernel.
package dataplane
