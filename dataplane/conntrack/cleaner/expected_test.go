// SPDX-License-Identifier: Apache-2.0

package cleaner

import (
	"context"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/service"
)

// TestCleaner_NextViewFlowsStay: a sweep keeps a flow to the new endpoint of a submitted view. A client may reach the
// endpoint while the cleaner still sweeps for the view before.
func TestCleaner_NextViewFlowsStay(t *testing.T) {
	inHouse(t, func(h *house) {
		next := viewOf("dns", clusterIP, endpointA, endpointB)
		h.kernels[service.IPv4].listing = func(n int) error {
			if n == 1 {
				h.Submitted(context.Background(), service.IPv4, next)
				h.kernels[service.IPv4].add("new", clusterIP, endpointB)
				h.kernels[service.IPv4].add("stale", clusterIP, "10.244.9.9:53")
			}
			return nil
		}
		h.tell(endpointA)
		h.settle()
		h.expectFlows("before the view is applied", "new")
		h.tell(endpointA, endpointB)
		h.settle()
		h.expectFlows("when it is applied", "new")
		h.Submitted(context.Background(), service.IPv4, viewOf("dns", clusterIP, endpointA))
		h.tell(endpointA)
		h.settle()
		h.expectFlows("after the endpoint has left")
	})
}

// TestCleaner_LastSubmissionKeepsNoFlows: flows to an endpoint that stops terminating are deleted although no view is
// submitted for this change. A terminating endpoint is in no rule.
func TestCleaner_LastSubmissionKeepsNoFlows(t *testing.T) {
	inHouse(t, func(h *house) {
		h.kernels[service.IPv4].add("terminating", clusterIP, endpointB)
		h.Submitted(context.Background(), service.IPv4, viewOf("dns", clusterIP, endpointA, endpointB))
		h.tell(endpointA, endpointB)
		h.settle()
		h.expectFlows("while it terminates", "terminating")
		h.tell(endpointA)
		h.settle()
		h.expectFlows("after its end")
	})
}

func TestExpectations(t *testing.T) {
	table := newTable()
	leads := func(destination string) bool {
		return table.expects(flowOf("", unix.IPPROTO_UDP, destination, endpointA))
	}
	submit := func(name string, p *picture) { table.put(named(name), p, false, time.Now()) }
	picture := pictured([]string{clusterIP, ":30053"}, []string{endpointA})
	submit("dns", picture)
	submit("other", picture)
	submit("dns", pictured(nil, nil))
	if !leads(clusterIP) || !leads(onNode) || leads(external) || table.owner(to(clusterIP)) != nil || table.todo.waits() {
		t.Error("want the frontends of the other Service, and no more")
	}
	submit("other", pictured(nil, nil))
	if leads(clusterIP) || len(table.claims) > 0 || len(table.services) > 0 {
		t.Errorf("something is left of removed Services: %v", table.claims)
	}
}
