package dataplane

import (
	"fmt"
	"time"

	"github.com/sluice-proxy/sluice/service"
)

// Outcome is the kind of a receipt: what the caller needs to branch on.
type Outcome uint8

const (
	// Landed: everything in the batch is in the kernel.
	Landed Outcome = iota
	// Busy: a lock was held or a buffer full; the same plan may work later.
	Busy
	// Unknown: timed out or killed half-way.
	Unknown
	// Rejected: the kernel or its tool refused something.
	Rejected
	// Unsupported: a feature is missing on this node.
	Unsupported
)

// String names the outcome for logs and metrics.
func (o Outcome) String() string {
	return [...]string{"landed", "busy", "unknown", "rejected", "unsupported"}[o]
}

// Receipt is a writer's account of one write.
type Receipt struct {
	Outcome Outcome
	// Certain holds, when Outcome is not Landed, the objects of the batch whose
	// state in the kernel is certain after the write: a nil Object means that
	// it is certainly absent. Objects of the batch that are missing here are
	// unknown, and must be read back or written again. Nil when Landed.
	Certain map[ID]*Object
	// Suspects are Services that the tool pointed at; a hint, not a proof, unless
	// Proven is set.
	Suspects []service.Key
	// Proven is set when what was refused is the Suspects' alone, object by object,
	// and other objects of the batch have landed: the node itself is not at fault,
	// and nobody else is concerned.
	Proven bool
	// Err carries the tool's own words; nil when Landed.
	Err error
	// Notes are what an operator has to know of the write besides, each a sentence
	// that is said once.
	Notes []string
	// Written counts what was handed to the kernel.
	Written Written
	// Took is how long the write lasted.
	Took time.Duration
}

// Written counts the work of a write.
type Written struct {
	// Objects is the number of objects created, replaced or removed.
	Objects int
	// Lines is the number of rules or elements in the input.
	Lines int
	// Bytes is the size of the input handed to the kernel or its tool.
	Bytes int
	// Calls is the number of commands or messages.
	Calls int
}

// Add sums two counts.
func (w Written) Add(other Written) Written {
	return Written{
		Objects: w.Objects + other.Objects,
		Lines:   w.Lines + other.Lines,
		Bytes:   w.Bytes + other.Bytes,
		Calls:   w.Calls + other.Calls,
	}
}

// String describes the receipt in one line.
func (r Receipt) String() string {
	if r.Err == nil {
		return fmt.Sprintf("%s: %d objects, %d bytes", r.Outcome, r.Written.Objects, r.Written.Bytes)
	}
	return fmt.Sprintf("%s: %v", r.Outcome, r.Err)
}
