// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"fmt"
	"time"
)

// Event is something that happened to a child.
type Event[K comparable] struct {
	Child K
	// Incarnation is zero for Parked and Unparked.
	Incarnation uint64
	// What happened, with its details.
	What Change
}

// Change is what happened to a child; one of the types in this file.
type Change interface{ change() }

// Started reports that a child runs, for the first time or again.
type Started struct {
	// Again is true for a restart.
	Again bool
}

// Failed reports that a child panicked or returned an error. It is restarted
// after Backoff.
type Failed struct {
	Err     error
	Score   float64
	Backoff time.Duration
}

// Stuck reports that a child spent longer than the deadline on one message. It
// has been fenced and abandoned.
type Stuck struct {
	For time.Duration
	// Stack is the child's stack, or why it is not available.
	Stack   string
	Score   float64
	Backoff time.Duration
	// Abandoned is the number of abandoned goroutines that still exist.
	Abandoned int
}

// Parked reports that a child failed too often. It is left alone until its input
// changes or the time is up.
type Parked struct {
	Score float64
	Err   error
	Until time.Time
}

// Unparked reports that a parked child is tried again.
type Unparked struct {
	// Nudged is true if its input changed, false if the time was up.
	Nudged bool
}

// Ended reports that a child returned because it had nothing more to do.
type Ended struct{}

// Unstopped reports that a child still worked when the supervisor stopped, After its
// context had ended. It has been fenced; the supervisor did not wait any longer.
type Unstopped struct {
	After time.Duration
	// Stack is the child's stack; empty after the first ten children.
	Stack string
}

// Returned reports that an abandoned goroutine returned after all.
type Returned struct {
	Abandoned int
}

func (Started) change()   {}
func (Failed) change()    {}
func (Stuck) change()     {}
func (Parked) change()    {}
func (Unparked) change()  {}
func (Ended) change()     {}
func (Returned) change()  {}
func (Unstopped) change() {}

// PanicError is the error of work that panicked.
type PanicError struct {
	Value any
	Stack []byte
}

// Error returns the panic's value; the stack is in the field.
func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// Unwrap returns the panic's value if it was an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}
