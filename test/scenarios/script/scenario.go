// Package script reads the text form of scenarios. A scenario begins with its
// number and title at the start of a line; its statements follow, indented, one
// per line, and a # begins a comment:
//
//	S-CIP-01 a pod reaches every endpoint under its own address
//	    endpoints a b
//	    p1 -> cluster => a b as client
//
// What the statements mean is the business of package play.
package script

import "fmt"

// Scenario is one scenario as it is written.
type Scenario struct {
	// ID is its number in the list of what a node proxy must do: S-CIP-01.
	ID    string
	Title string
	Lines []Line
	// File and Number say where it begins.
	File   string
	Number int
}

// Line is one statement. It may have come from several lines of text that end
// with a backslash.
type Line struct {
	// Words are separated by spaces; double quotes keep them together.
	Words []string
	// Text is the statement as it is written.
	Text   string
	Number int
}

// String returns the place of a scenario for messages.
func (s Scenario) String() string { return fmt.Sprintf("%s (%s:%d)", s.ID, s.File, s.Number) }
