package conformance

import (
	"strings"
	"testing"
)

// cases lists every case, named after what they show.
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

	{"read gives what was planned", readCase},
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
