// Package faults damages a running proxy in nftables mode on the real kernel,
// and watches what real connections make of it.
//
//	client ──── node ──── pods
//	              └─ proxy.Proxy ──► nftables.Writer ×2 ──► kernel
//
// Some thirty Services are programmed, of which a few are live: all through a
// fault the client makes new connections to each of their frontends and holds
// established ones. A test says with each fault which frontends it destroys by
// its nature, and for how long; every other connection must succeed, and so must
// those once the proxy has healed the damage.
//
// Other tests put one release in the place of another, in the modes nftables and iptables:
// they load recorded rules (testdata/releases, see docs/adr/0015), and others made out of
// them, and let the present proxy take over. There every connection must succeed.
//
// Whenever a write does not land, its receipt is compared with what the kernel
// holds: what it calls certain must be so. After every write the kernel is compared
// with what it held before: whoever was served must be so still.
package faults
