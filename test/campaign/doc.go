// Command campaign lets proxies die, restart, be upgraded and be reconfigured for as
// long as it is told, beside one Service that the real kernel refuses the whole time,
// and counts what that costs the other Services: nothing.
//
//	client ──── node ──── pods
//	              ├─ sluice proxy ──► kernel
//	              └─ API server (test/apitest)
//
// The proxies are processes of the real program. Three builds of it take turns: one as
// it is, with which the campaign begins and which serves every Service, and two of
// different versions whose renderer adds to one Service what no kernel accepts (see
// builds.go). A few Services change their endpoints all the time, among pods that all
// answer, so every process has something to write.
//
// A client makes new TCP connections and asks UDP questions at a steady rate, at
// ClusterIPs and node ports in both families, and holds long-lived sessions. Whatever
// does not succeed is lost; the status is 1 if anything is. What is sent to the refused
// Service itself is counted apart.
//
// It runs as root in network namespaces of its own, outside of CI:
//
//	make campaign DURATION=1h MODE=iptables VARIANT=legacy
package main
