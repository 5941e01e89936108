// Package dataplane is the language between actors, aggregator and kernel
// writers: objects, fragments, batches, receipts and verdicts, and the small
// contracts that a backend fulfils (Renderer, Writer, Layout, Watcher).
//
// The values are immutable once handed over. The package itself does nothing to
// a kernel.
package dataplane
