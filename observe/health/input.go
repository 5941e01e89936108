package health

import (
	"time"

	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/service"
)

// Domain is the newest snapshot of one domain, with what the snapshot does not
// say.
type Domain struct {
	Status aggregator.Status
	Family service.Family
	// Auxiliary domains hold something beside the kernel's rules: what is wrong
	// with them is told, and makes nobody unhealthy.
	Auxiliary bool
}

// failing tells whether the last try to write went wrong, as opposed to the
// refusal of a single Service.
func failing(s *aggregator.Status) bool { return s.Failures > 0 || s.NodeAtFault }

// Resource is the state of one kind of API object that the source follows. Its
// fields are those of source/kube's Status, which converts to it.
type Resource struct {
	// Resource is the plural name, for example "endpointslices".
	Resource string
	// Heard is when the server last sent anything about it; zero if never.
	Heard time.Time
	// FailingSince is zero while requests succeed.
	FailingSince time.Time
	// Err is the last error while FailingSince is set or Absent is true.
	Err error
	// Absent tells that the resource is optional and cannot be had.
	Absent bool
}
