// Command apiserver is a Kubernetes control plane small enough for a test: the real kube-apiserver,
// built from the published module, with etcd inside the same process.
//
//	apiserver --data-dir DIR [--bind-address 127.0.0.1] [--secure-port 6443]
//
// It writes DIR/credentials/admin.kubeconfig (may do everything) and DIR/credentials/proxy.kubeconfig
// (user system:kube-proxy, who has the rights of a service proxy), starts, and prints one line
//
//	ready https://ADDRESS:PORT
//
// on standard output once /readyz says so. The log of both servers goes to standard error. SIGTERM or
// SIGINT ends it with status 0; started again on the same folder and port, it has everything it had.
//
// Requests are authorized with RBAC, as in a cluster, so a missing permission shows. There are no
// controllers, no scheduler and no nodes: EndpointSlices are whatever a test writes. Nothing is
// written in the background either (no lease of the server's own endpoints), so a test can count.
//
// Data is not forced to disk. It survives the death of the process, not that of the machine.
package main
