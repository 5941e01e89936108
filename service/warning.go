// SPDX-License-Identifier: Apache-2.0

package service

import (
	"cmp"
	"fmt"
)

// Warning says that a part of an API object cannot be used. The rest of the
// object is still served.
type Warning struct {
	// Object is the kind and name, for example "Service ns1/svc1".
	Object string `json:"object"`
	// Field is the path of the offending field, for example
	// "spec.externalIPs[1]".
	Field string `json:"field"`
	// Problem says what is wrong with the field.
	Problem string `json:"problem"`
	// Effect says what the proxy does instead; empty when it does nothing.
	Effect string `json:"effect,omitempty"`
}

// String returns one line: "Service ns1/svc1: spec.externalIPs[1]: …; the entry is skipped".
func (w Warning) String() string { return w.Object + ": " + w.Field + ": " + w.Message() }

// Message returns the problem and its effect.
func (w Warning) Message() string {
	if w.Effect == "" {
		return w.Problem
	}
	return w.Problem + "; " + w.Effect
}

// Revision orders what one key has produced: incarnation first, sequence
// second. The supervisor raises the incarnation when it restarts an actor, so that the
// new actor outranks the old one and late answers to the old one are recognized. The zero Revision is older than every
// real one.
type Revision struct {
	Incarnation uint64
	Sequence    uint64
}

// Compare is negative when r is older than other, zero when equal.
func (r Revision) Compare(other Revision) int {
	if c := cmp.Compare(r.Incarnation, other.Incarnation); c != 0 {
		return c
	}
	return cmp.Compare(r.Sequence, other.Sequence)
}

// Next is the revision that follows r in the same incarnation.
func (r Revision) Next() Revision {
	return Revision{Incarnation: r.Incarnation, Sequence: r.Sequence + 1}
}

// String returns "incarnation.sequence".
func (r Revision) String() string {
	return fmt.Sprintf("%d.%d", r.Incarnation, r.Sequence)
}
