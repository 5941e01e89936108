// SPDX-License-Identifier: Apache-2.0

package render

// Table names one of the tables that Sluice writes to.
type Table string

// The tables, in the order in which iptables-save prints them.
const (
	Mangle Table = "mangle"
	Filter Table = "filter"
	NAT    Table = "nat"
)

// Tables are the tables that Sluice writes to, in that order.
var Tables = [...]Table{Mangle, Filter, NAT}

// The kernel's accounting objects (nfacct) in which rules count. They have the same names as
// kube-proxy's, so a proxy continues the counts of the other proxy, and of itself before a restart. All
// variants and families share them.
const (
	// AccountInvalid counts packets that were dropped because conntrack considers them invalid.
	AccountInvalid = "ct_state_invalid_dropped_pkts"
	// AccountLocalhost counts the first packets of connections to node ports on localhost.
	AccountLocalhost = "localhost_nps_accepted_pkts"
)

// AccountMatch returns the match that counts in an object. It must follow all other matches: it counts
// packets that they matched. The object has to exist when the rule is added.
func AccountMatch(name string) string { return "-m nfacct --nfacct-name " + name }
