package main

import (
	"k8s.io/apimachinery/pkg/watch"

	"github.com/sluice-proxy/sluice/service"
)

// change is one change of a Service: the watch events that tell of it, and what
// it takes to know that they are in the kernel.
type change struct {
	key    service.Key
	events []watch.Event
	// objects of the Service have to be written until the change is complete. It
	// is more than 1 where the events may go in one batch or in several.
	objects int
}

// kind is a sort of change. For the number of an event it gives the Service to
// change; those of one kind are all different, as long as there are enough.
type kind struct {
	name    string
	service func(c *cluster, event int) int
	change  func(c *cluster, i int) change
}

// kinds are in an order in which each finds what it needs.
var kinds = []kind{
	{"endpoint replaced", spread, (*cluster).replaceEndpoint},
	{"scaled up by one", spread, (*cluster).scaleUp},
	{"scaled down by one", spread, (*cluster).scaleDown},
	{"Service added", behind, (*cluster).addService},
	{"Service removed", behind, (*cluster).removeService},
}

// spread goes over the Services in large steps. The step is a prime, so that all
// have had their turn before one comes again.
func spread(c *cluster, event int) int {
	const step = 7919
	return event * step % c.services
}

// behind returns Services that are not part of the cluster at first.
func behind(c *cluster, event int) int { return c.services + event }

// replaceEndpoint exchanges one endpoint, another one each time.
func (c *cluster) replaceEndpoint(i int) change {
	at := 0
	c.change(i, func(numbers []int) []int {
		at = c.fresh % len(numbers)
		numbers[at] = c.unused()
		return numbers
	})
	return c.modified(i, at/perSlice)
}

func (c *cluster) scaleUp(i int) change {
	c.change(i, func(numbers []int) []int { return append(numbers, c.unused()) })
	return c.modified(i, (len(c.endpointsOf(i))-1)/perSlice)
}

func (c *cluster) scaleDown(i int) change {
	c.change(i, func(numbers []int) []int { return numbers[:len(numbers)-1] })
	return c.modified(i, (len(c.endpointsOf(i))-1)/perSlice)
}

// modified tells of one slice.
func (c *cluster) modified(i, at int) change {
	return change{key: serviceKey(i), events: []watch.Event{{Type: watch.Modified, Object: c.slice(i, at)}}}
}

// addService tells of a Service first and of its slices at once thereafter. The
// proxy may see the former without the latter, so what counts is that there is
// an object for each endpoint.
func (c *cluster) addService(i int) change {
	ch := change{key: serviceKey(i), objects: len(c.endpointsOf(i))}
	ch.events = append(ch.events, watch.Event{Type: watch.Added, Object: c.service(i)})
	for _, slice := range c.slices(i) {
		ch.events = append(ch.events, watch.Event{Type: watch.Added, Object: slice})
	}
	return ch
}

// removeService tells of a Service first, as its slices are collected after it.
func (c *cluster) removeService(i int) change {
	ch := change{key: serviceKey(i)}
	ch.events = append(ch.events, watch.Event{Type: watch.Deleted, Object: c.service(i)})
	for _, slice := range c.slices(i) {
		ch.events = append(ch.events, watch.Event{Type: watch.Deleted, Object: slice})
	}
	return ch
}
