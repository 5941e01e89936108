package iptables

import (
	"fmt"

	"github.com/sluice-proxy/sluice/service"
)

// MissingError says that the node lacks something that a family needs. It is
// conclusive: trying again does not help until somebody changes the node.
type MissingError struct {
	Family service.Family
	// What is wrong, as a clause: "the kernel has no IPv6".
	What string
	// Need is what would do.
	Need string
	// Err is what was found out, if anything.
	Err error
}

// Error names what is missing and what is needed instead.
func (e *MissingError) Error() string {
	text := fmt.Sprintf("iptables for %s cannot be used: %s; needed: %s", e.Family, e.What, e.Need)
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Unwrap gives what was found out.
func (e *MissingError) Unwrap() error { return e.Err }
