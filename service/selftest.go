// SPDX-License-Identifier: Apache-2.0

package service

import "net/netip"

// SelfTest has the ports of the node's self-test, on the loopback address of each family. Connections to
// Frontend are translated to Endpoint. The zero value means that there is none.
type SelfTest struct{ Frontend, Endpoint uint16 }

// PreferredSelfTest are the ports of every process that finds them free: a restart then leaves the
// rules as they are. Neither is a node port, nor one that the kernel gives to clients by default.
var PreferredSelfTest = SelfTest{Frontend: 10270, Endpoint: 10271}

// SelfTestKey names the self-test in comments of rules. It has no namespace, so no Service of the API has it.
var SelfTestKey = Key{Name: "self-test"}

// Loopback is the address of each family that only this node reaches.
var Loopback = PerFamily[netip.Addr]{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}

// SelfTestView returns the self-test as a Service. The frontend is an external IP: ClusterIPs also get rules about all
// other ports of the address.
func (f *NodeFacts) SelfTestView() *View {
	v := &View{Key: SelfTestKey}
	for _, family := range Families {
		v.Ports[family] = []PortView{{
			Port: f.SelfTest.Frontend, ExternalIPs: []netip.Addr{Loopback[family]}, HasAny: true,
			Cluster: []Endpoint{{AddrPort: netip.AddrPortFrom(Loopback[family], f.SelfTest.Endpoint)}},
		}}
	}
	return v
}
