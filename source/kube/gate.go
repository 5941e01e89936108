package kube

import "sync"

// gate calls open once, when each of the named resources has been listed.
type gate struct {
	mu      sync.Mutex
	waiting map[string]bool
	open    func()
}

func newGate(open func(), resources ...string) *gate {
	waiting := make(map[string]bool, len(resources))
	for _, resource := range resources {
		waiting[resource] = true
	}
	return &gate{waiting: waiting, open: open}
}

// listed says that a resource has delivered its list. Only the first time counts.
func (g *gate) listed(resource string) {
	g.mu.Lock()
	last := g.waiting[resource] && len(g.waiting) == 1
	delete(g.waiting, resource)
	g.mu.Unlock()
	if last {
		g.open()
	}
}
