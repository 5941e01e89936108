package service

// Scheduling is how a Service asks for its connections to be spread over its
// endpoints. Only IPVS can choose; the zero value leaves it to the node's
// configuration.
type Scheduling struct {
	// Scheduler is the kernel's name of an IPVS scheduler, for example "sh".
	Scheduler string
	// Ports lets a scheduler that hashes clients count their ports, so that the
	// connections of one client are spread (flags sh-port, mh-port).
	Ports bool
	// Fallback lets a scheduler that hashes clients try another endpoint where the
	// chosen one takes no new connections (flags sh-fallback, mh-fallback).
	Fallback bool
}
