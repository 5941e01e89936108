// SPDX-License-Identifier: Apache-2.0

// Package service holds the plain values of Sluice: what the Kubernetes API
// said about one Service, what this node knows about itself, and the resolved
// view of a Service as this node should serve it.
//
// Everything here is a value. Nothing starts a goroutine, takes a lock, reads a
// clock or talks to a kernel, and nothing imports the Kubernetes API types:
// package source reduces API objects to these values. A value is built once,
// handed over, and never changed afterwards; to change one, copy it.
package service
