package service

// standing says what one occurrence of an endpoint is good for. Higher is
// better: of several occurrences of the same address and port, the best counts.
//
// kube-proxy lets the last occurrence that is not terminating win, so that the
// outcome depends on the order of a map walk, and a pod that is not ready hides
// a ready one, or one that serves to its end, at the same address (kubernetes
// issue 135593). Here nothing unusable ever hides something usable.
type standing uint8

const (
	// absent endpoints are not to be used, not even by established flows.
	absent standing = iota
	// unready endpoints serve and do not terminate, but are not ready: no new
	// connections.
	unready
	// servingTerminating endpoints are used when nothing is ready.
	servingTerminating
	// readyTerminating endpoints belong to Services that publish addresses
	// which are not ready; they are as good as ready ones, but a running pod
	// comes first.
	readyTerminating
	// readyRunning endpoints are the normal case.
	readyRunning
)

// standingOf judges by the conditions. Ready alone decides readiness; the other
// two are asked only without it.
func standingOf(e *SliceEndpoint) standing {
	switch {
	case e.Ready && e.Terminating:
		return readyTerminating
	case e.Ready:
		return readyRunning
	case e.Serving && e.Terminating:
		return servingTerminating
	case e.Serving:
		return unready
	default:
		return absent
	}
}
