// Package device keeps the dummy network device that makes the virtual addresses
// of IPVS addresses of this host: packets to them are for this host, whether or
// not the device is up, so that IPVS sees them. It is left down, as kube-proxy
// leaves it.
//
// Links and lists are the business of github.com/vishvananda/netlink. Its calls
// for addresses send one request and wait for the answer; here many requests,
// made by its package nl, go in one send, and each has its own answer.
package device
