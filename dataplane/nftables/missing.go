package nftables

import (
	"fmt"

	"github.com/sluice-proxy/sluice/service"
)

// MissingError says that the node lacks something that a family needs. It is
// conclusive: trying again does not help until somebody changes the node.
type MissingError struct {
	Family service.Family
	// Feature is what the kernel cannot do.
	Feature string
	// Need is what would do: a kernel version, an option of its build.
	Need string
	// Err is the kernel's own word.
	Err error
}

// Error names the feature, and what is needed to have it.
func (e *MissingError) Error() string {
	return fmt.Sprintf("nftables for %s cannot be used: the kernel lacks %s; needed: %s: %v", e.Family, e.Feature, e.Need, e.Err)
}

// Unwrap gives the kernel's own word.
func (e *MissingError) Unwrap() error { return e.Err }
