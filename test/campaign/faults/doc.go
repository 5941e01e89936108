// SPDX-License-Identifier: Apache-2.0

// Package faults damages a running proxy in nftables mode on the real kernel, and watches real
// connections meanwhile.
//
//	client ──── node ──── pods
//	              └─ proxy.Proxy ──► kernel.Writer ×2 ──► kernel
//
// Some thirty Services are programmed, of which a few are live: during a fault, the client makes
// new connections to each of their frontends and holds established ones. Each test declares which
// frontends a fault destroys by its nature, and for how long. Every other connection must succeed,
// and so must those once the proxy has repaired the damage.
//
// When a write does not land, its receipt is compared with the kernel: what it calls certain must
// be so. After every write, the kernel is compared with what it held before: each Service that was
// served must still be served.
package faults
