package dataplane

import "github.com/sluice-proxy/sluice/service"

// Verdict is the answer to a fragment. A verdict for a revision settles every
// earlier one of the same key and domain.
type Verdict struct {
	Key      service.Key
	Domain   string
	Revision service.Revision
	// Quarantined is false when the fragment is applied. A quarantined
	// fragment is held back; its last applied objects stay in the kernel.
	Quarantined bool
	// Reason carries the kernel's own words when Quarantined.
	Reason string
}
