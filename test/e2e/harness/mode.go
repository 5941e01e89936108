package harness

// Mode is the kernel interface that Sluice writes its rules through, as its flag --proxy-mode names it.
type Mode string

// The modes, each of which every test of what clients see runs in.
const (
	IPTables Mode = "iptables"
	NFTables Mode = "nftables"
)

// Modes are all of them.
var Modes = []Mode{IPTables, NFTables}
