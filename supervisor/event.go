package supervisor

import (
	"fmt"
	"time"
)

// Event is something that happened to a child; one of the types in this file.
type Event interface{ event() }

// Started says that a child runs, for the first time or again.
type Started struct {
	Child       string
	Incarnation uint64
	// Again is true for a restart.
	Again bool
}

// Failed says that a child panicked or returned an error, and when it is tried
// again.
type Failed struct {
	Child       string
	Incarnation uint64
	Err         error
	Score       float64
	Backoff     time.Duration
}

// Stuck says that a child stayed with one message past its deadline, and has
// been fenced and abandoned.
type Stuck struct {
	Child       string
	Incarnation uint64
	For         time.Duration
	// Stack is where it stands, or why that could not be found out.
	Stack   string
	Score   float64
	Backoff time.Duration
	// Abandoned is the number of abandoned goroutines that still exist.
	Abandoned int
}

// Parked says that a child failed too often and is left alone until its input
// changes or the time is up.
type Parked struct {
	Child string
	Score float64
	Err   error
	Until time.Time
}

// Unparked says that a parked child is tried again.
type Unparked struct {
	Child string
	// Nudged is true when its input changed, false when the time was up.
	Nudged bool
}

// Ended says that a child returned because it had nothing more to do.
type Ended struct {
	Child       string
	Incarnation uint64
}

// Returned says that an abandoned goroutine came back after all.
type Returned struct {
	Child       string
	Incarnation uint64
	Abandoned   int
}

func (Started) event()  {}
func (Failed) event()   {}
func (Stuck) event()    {}
func (Parked) event()   {}
func (Unparked) event() {}
func (Ended) event()    {}
func (Returned) event() {}

// PanicError is the error of a child that panicked.
type PanicError struct {
	Value any
	Stack []byte
}

// Error gives the panic's value; the stack is in the field.
func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// Unwrap gives the panic's value when it was an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}
