package actors

import "github.com/sluice-proxy/sluice/service"

// Snapshot is the truth about one Service at one moment, as the source knows
// it.
type Snapshot struct {
	// Spec is nil when the Service does not exist.
	Spec   *service.Spec
	Slices []*service.Slice
}
