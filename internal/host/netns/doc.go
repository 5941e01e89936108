// Package netns makes small networks out of Linux network namespaces, for tests and the demo.
//
// A [Namespace] is a host with its own links, routes, sockets and packet filter. [Link] joins two
// of them by a virtual cable, and a [Backend] stands in one and says who reached it:
//
//	client 10.0.1.2 ──── veth ──── node 10.0.1.1 │ 10.0.2.1 ──── veth ──── Backend 10.0.2.2:80
//
// # Privileges
//
// No external program is run to build a network. The process needs CAP_SYS_ADMIN and CAP_NET_ADMIN
// in its user namespace: either it is root, or it was started inside a user namespace in which it is
// mapped to root (unshare --user --map-root-user --net). In the second case nothing on the machine
// itself changes. Where the kernel does not let the process return to the namespace it came from (a
// user namespace without a network namespace of its own), everything here works too, at the price of
// one operating system thread per call.
//
// # Concurrency
//
// All methods may be called from several goroutines at once. A network namespace belongs to an
// operating system thread, so [Namespace.Do] borrows one and gives it back; the calling goroutine
// never moves. The main thread is never borrowed, because /proc/self and /proc/net show what *it*
// sees, to the whole process.
//
// A socket stays in the namespace it was created in, whichever thread uses it later. So do child
// processes. A namespace therefore lives on in the kernel after [Namespace.Close] for as long as a
// socket or a process is left in it.
package netns
