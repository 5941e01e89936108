// Package harness lets a test run Sluice as it runs on a node: as a process of its own, in a network
// of its own, against a real API server, with real connections through the Service addresses.
//
//	api                     x (outside the cluster)
//	 │                      │
//	 └──────── n1 ──────────┘      n1 runs sluice; its kernel is the one under test
//	┌───────┬──┴───────┐
//	p1      a          n2          p1 a pod that is a client, a a pod behind Services
//	                 ┌─┴─┐
//	                 b   c         pods behind Services on another node
//
// The proxy's mode is chosen at each start of one. What a test asks of the kernel does not depend on it: the
// answers hold iptables and nftables alike.
//
// Every letter is a network namespace; every line is a cable that carries IPv4 and IPv6. A [Cluster] is
// all of that for one test, made in a few seconds and gone with the test. Nothing on the machine
// itself changes.
//
// Every wait has an end, and what a test says on failure includes the last lines of each log. The logs
// are whole in the folder of testing.T.ArtifactDir; go test -artifacts keeps them.
package harness
