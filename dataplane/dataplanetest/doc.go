// Package dataplanetest is the conformance suite of the backends: one list of
// cases that every writer passes, into the real kernel or into the model of nf_tables.
//
// A backend hands [Run] a [Harness]. Each case opens a fresh [Node], brings
// Services into it on the path that the proxy takes (resolve, render, account,
// plan, write), reads back after every write, and asks the [Probe] what clients
// see. The cases are the numbered acceptance scenarios that concern packets,
// and what a [dataplane.Writer] promises about its receipts.
//
// Two probes exist: Tracer follows packets through the model, [Network] opens real
// sockets in network namespaces. Both build the same little world,
// described by [Fixture].
package dataplanetest
