package render

// Table names one of the tables that Sluice writes to.
type Table string

// The tables, in the order in which iptables-save prints them.
const (
	Mangle Table = "mangle"
	Filter Table = "filter"
	NAT    Table = "nat"
)

// Tables are those that Sluice writes to, in that order.
var Tables = [...]Table{Mangle, Filter, NAT}

// The kernel's accounting objects (nfacct) that rules count in. Both have kube-proxy's names: each
// proxy goes on with what the other has counted, and so does a restarted one. All variants and
// families share them.
const (
	// AccountInvalid counts packets that were dropped because conntrack cannot place them.
	AccountInvalid = "ct_state_invalid_dropped_pkts"
	// AccountLocalhost counts the first packets of connections to node ports on localhost.
	AccountLocalhost = "localhost_nps_accepted_pkts"
)

// AccountMatch is the match that counts in an object. It goes behind all other matches: a rule
// counts what has come that far. The object has to exist when the kernel takes the rule.
func AccountMatch(name string) string { return "-m nfacct --nfacct-name " + name }
