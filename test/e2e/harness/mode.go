package harness

import (
	"os"
	"strings"
)

// Mode is the kernel interface that Sluice writes its rules through, as its flag --proxy-mode names it.
type Mode string

// The modes, each of which every test of what clients see runs in. IPVS is one that a kernel may not have, so
// it runs only where it is asked for.
const (
	IPTables Mode = "iptables"
	NFTables Mode = "nftables"
	IPVS     Mode = "ipvs"
)

// Modes are those to test: iptables and nftables, or what the environment lists.
var Modes = modes(os.Getenv(envModes))

func modes(listed string) []Mode {
	if listed == "" {
		return []Mode{IPTables, NFTables}
	}
	var all []Mode
	for name := range strings.SplitSeq(listed, ",") {
		all = append(all, Mode(name))
	}
	return all
}
