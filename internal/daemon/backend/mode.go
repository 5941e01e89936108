package backend

import (
	"errors"
	"fmt"

	proxy "github.com/sluice-proxy/sluice"
	"github.com/sluice-proxy/sluice/dataplane/nftables"
)

// Mode names a kernel backend, as kube-proxy's --proxy-mode does.
type Mode string

// The kernel backends. ModeBest is the default: nftables where the kernel has
// what it needs, iptables elsewhere.
const (
	ModeBest     Mode = ""
	ModeIPTables Mode = "iptables"
	ModeNFTables Mode = "nftables"
	ModeIPVS     Mode = "ipvs"
)

// Known reports whether m is a backend, or ModeBest.
func (m Mode) Known() bool {
	return m == ModeBest || m == ModeIPTables || m == ModeNFTables || m == ModeIPVS
}

// Builder builds the domains of one backend.
type Builder func() ([]proxy.Domain, error)

// Builders are those of all backends.
type Builders struct{ NFTables, IPTables, IPVS Builder }

// Build builds the domains of the backend that is asked for, and tells which it
// is. ModeBest falls back to iptables when the kernel lacks something that
// nftables mode needs; which it is, and why, is told by choice. Any other trouble is
// an error, since it would be one in either backend. IPVS serves only where it is asked
// for, and falls back to nothing.
func Build(asked Mode, choice *Choice, by Builders) (Mode, []proxy.Domain, error) {
	switch asked {
	case ModeIPTables:
		domains, err := by.IPTables()
		return asked, domains, err
	case ModeIPVS:
		domains, err := by.IPVS()
		return asked, domains, err
	}
	domains, err := by.NFTables()
	_, lacks := errors.AsType[*nftables.MissingError](err)
	switch {
	case lacks && asked == ModeBest:
		choice.tell(ModeIPTables, err)
		domains, err = by.IPTables()
		return ModeIPTables, domains, err
	case lacks:
		err = fmt.Errorf("%w\nuse a kernel that has it, or --proxy-mode iptables", err)
	case err == nil && asked == ModeBest:
		choice.tell(ModeNFTables, nil)
	}
	return ModeNFTables, domains, err
}
