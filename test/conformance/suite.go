// Package conformance is the conformance suite of the backends: one list of cases that every writer
// passes, into a real kernel or into a model of one.
//
// A backend's test hands [Run] a [Harness]. Each case opens a fresh [Node], brings Services into it
// on the path that the proxy takes (resolve, render, account, plan, write), reads back after every
// write, and asks the [Probe] what clients see. The cases are the acceptance scenarios that concern
// packets, and what a [dataplane.Writer] promises about its receipts.
//
// Two probes exist: [Tracer] follows packets through a model, [Network] opens real sockets in
// network namespaces. Both build the same small world, which [Fixture] describes.
package conformance

import (
	"strings"
	"testing"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// cases lists every case, named after what it shows.
var cases = []struct {
	name string
	run  func(*scene)
}{
	{"cluster IP", clusterIPCase},
	{"scale up, down and replace", scaleCase},
	{"delete a Service", deleteCase},
	{"two Services", twoServicesCase},
	{"two Services with one endpoint", commonEndpointCase},
	{"masquerade all", masqueradeAllCase},
	{"no detection of local traffic", noDetectionCase},
	{"local traffic by interface", interfaceDetectionCase},
	{"hairpin", hairpinCase},
	{"backend on the host network", hostBackendCase},
	{"node port", nodePortCase},
	{"node port on the loopback interface", loopbackNodePortCase},
	{"node port off the loopback interface", noLoopbackNodePortCase},
	{"node port on listed addresses", listedNodePortCase},
	{"node port on no address", unlistedNodePortCase},
	{"external frontends, policy Cluster", externalClusterCase},
	{"external IP of the node itself", ownExternalIPCase},
	{"no endpoints", noEndpointsCase},
	{"endpoints come and go", endpointsComeAndGoCase},
	{"external policy Local", externalLocalCase},
	{"external policy Local, no local endpoint", externalLocalRemoteCase},
	{"external policy Local, no detection", externalLocalNoDetectionCase},
	{"external policy Local, no endpoint at all", externalLocalNobodyCase},
	{"external policy switches", externalSwitchCase},
	{"internal policy Local", internalLocalCase},
	{"internal policy Local, no local endpoint", internalLocalRemoteCase},
	{"internal policy Local, no endpoint at all", internalLocalNobodyCase},
	{"both policies Local", bothLocalCase},
	{"local endpoint terminates", terminatingCase},
	{"source ranges", sourceRangesCase},
	{"source ranges with pods and node", wideSourceRangesCase},
	{"source ranges, policy Local", localSourceRangesCase},
	{"UDP", udpCase},
	{"affinity", affinityCase},
	{"affinity over frontends", affinityAcrossCase},

	{"read returns what was planned", readCase},
	{"the order of Services does not matter", confluenceCase},
	{"refused batches", refusedCase},
	{"refused on the way to endpoints and back", refusedTurnCase},
	{"refused first batch", refusedFirstCase},
	{"refused batch on a drifted kernel", refusedOnDriftCase},
	{"cancelled write", cancelledCase},
	{"restart adopts", adoptCase},
	{"restart sweeps", sweepCase},
	{"what belongs to others stays", foreignCase},
	{"drift is seen and repaired", driftCase},
	{"wiped tables are written again", wipeCase},
}

// Run runs all cases as parallel subtests, each on a node of its own.
func Run(t *testing.T, h Harness) {
	for _, c := range cases {
		t.Run(strings.ReplaceAll(c.name, ",", ""), func(t *testing.T) {
			t.Parallel()
			s := openScene(t, h)
			c.run(s)
			s.asking.Wait()
		})
	}
}

// Harness is one backend in one family.
type Harness struct {
	Family   service.Family
	Renderer dataplane.Renderer
	// NewLayout returns an empty layout. It is nil for a backend without one.
	NewLayout func() dataplane.Layout
	// Open returns a node with an empty kernel, and cleans up after the test.
	Open func(t *testing.T, world Fixture) Node
	// LoopbackNodePorts says that node ports answer on 127.0.0.1.
	LoopbackNodePorts bool
	// UnallocatedDropped says that packets to addresses of the Service range are dropped when no
	// Service has the address; otherwise they go through.
	UnallocatedDropped bool
}

// Node is one kernel and the ways to it.
type Node struct {
	// NewWriter returns a writer as a newly started process has it.
	NewWriter func() dataplane.Writer
	Probe     Probe
	Meddler   Meddler
}

// Meddler changes a kernel as other programs do, and spoils objects so that a kernel refuses them.
type Meddler interface {
	// Poison returns the object spoiled so that the kernel refuses it, and false if it cannot spoil
	// objects of this kind.
	Poison(object dataplane.Object) (dataplane.Object, bool)
	// Damage removes part of an object from the kernel. It returns false if there is nothing to
	// remove.
	Damage(t *testing.T, id dataplane.ID) bool
	// Wipe removes everything from the tables that the backend uses.
	Wipe(t *testing.T)
	// Plant adds something to the kernel that belongs to another program.
	Plant(t *testing.T)
	// CheckPlanted fails the test unless that is still there and unchanged.
	CheckPlanted(t *testing.T)
}
