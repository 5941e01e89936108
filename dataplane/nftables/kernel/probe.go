package kernel

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane/nftables/render"
	"github.com/sluice-proxy/sluice/dataplane/nftables/rules"
	"github.com/sluice-proxy/sluice/dataplane/nftables/wire"
	"github.com/sluice-proxy/sluice/internal/netlink"
	"github.com/sluice-proxy/sluice/service"
)

// probeTable is where features are tried. The same transaction removes what it adds, except
// for rejectEarly, which removes it in a later one. The first try of the next probe, or Cleanup,
// removes what a killed probe left.
const probeTable = "sluice-probe"

// Probe tries whether the kernel has all that a family's rules need. inside is that of
// WriterConfig. Probe blocks for milliseconds. It returns a *MissingError for each missing
// feature, joined.
func Probe(family service.Family, inside func(func() error) error) error {
	return probing(family, inside, (*prober).probe)
}

// Check is Probe for a process that writes nothing: no other program can see what it tries,
// because each transaction removes what it adds.
func Check(family service.Family) error {
	return probing(family, nil, (*prober).check)
}

// CheckHashing is Check for what Services that hash need in addition.
func CheckHashing(family service.Family) error {
	return probing(family, nil, func(p *prober) error { return p.each(render.Hashing(family)) })
}

func probing(family service.Family, inside func(func() error) error, probe func(*prober) error) error {
	if inside == nil {
		inside = here
	}
	var socket *wire.Socket
	if err := inside(func() error {
		var err error
		socket, err = wire.Open()
		return err
	}); errors.Is(err, unix.EPROTONOSUPPORT) {
		return &MissingError{
			Family: family, Feature: "netlink for netfilter", Need: "CONFIG_NETFILTER_NETLINK", Err: err,
		}
	} else if err != nil {
		return err
	}
	return errors.Join(probe(&prober{d: &rules.Headers[family], socket: socket}), socket.Close())
}

type prober struct {
	d      *rules.Header
	socket Socket
}

func (p *prober) probe() error {
	if err := p.check(); err != nil {
		return err
	}
	return p.rejectEarly()
}

func (p *prober) check() error { return p.each(render.Features(p.d.Family)) }

// each tries all features. Without the first there is no other, and one error says it.
func (p *prober) each(features []render.Feature) error {
	var missing []error
	for i, f := range features {
		err := p.try(f)
		if isBusy(err) || errors.Is(err, unix.EPERM) {
			return fmt.Errorf("probe the kernel: %w", err)
		}
		if err != nil {
			missing = append(missing, &MissingError{Family: p.d.Family, Feature: f.Name, Need: f.Need, Err: err})
			if i == 0 {
				break
			}
		}
	}
	return errors.Join(missing...)
}

// try adds what needs the feature, and removes it in the same transaction.
func (p *prober) try(f render.Feature) error {
	e := p.emitter()
	for _, s := range f.Sets {
		e.addSet(s.ID.Name, s.Body)
	}
	if len(f.Chain.Rules) > 0 {
		e.addWhole(f.Chain)
	}
	e.deleteTable()
	return p.commit(e)
}

// emitter begins a transaction that adds the table.
func (p *prober) emitter() *emitter {
	e := newEmitter(p.d)
	e.table = probeTable
	e.addTable(string(netlink.AppendUint32(nil, unix.NFTA_TABLE_FLAGS, 0)))
	return e
}

func (p *prober) commit(e *emitter) error {
	e.finish()
	rejections, err := p.socket.Commit(e.t)
	if err == nil && len(rejections) > 0 {
		err = rejections[0]
	}
	return err
}

// rejectEarly tries to reject before routing. The kernel examines only what a transaction
// leaves. The table is dormant: no packet passes it.
func (p *prober) rejectEarly() error {
	make := newEmitter(p.d)
	make.table = probeTable
	make.addTable(string(netlink.AppendUint32(nil, unix.NFTA_TABLE_FLAGS, unix.NFT_TABLE_F_DORMANT)))
	make.addWhole(render.EarlyReject(p.d.Family))
	err := p.commit(make)
	if isBusy(err) || errors.Is(err, unix.EPERM) {
		return fmt.Errorf("probe the kernel: %w", err)
	}
	if err != nil {
		return &MissingError{Family: p.d.Family, Feature: "reject before routing", Need: "Linux 5.9", Err: err}
	}
	_, err = deleteTable(p.socket, p.d, probeTable)
	return err
}

// MissingError means that the kernel lacks something that a family needs. Trying again does
// not help until the administrator changes the node.
type MissingError struct {
	Family service.Family
	// Feature is what the kernel cannot do.
	Feature string
	// Need is what has the feature: a kernel version, a build option.
	Need string
	// Err is the kernel's answer.
	Err error
}

// Error names the feature and what has it.
func (e *MissingError) Error() string {
	return fmt.Sprintf("nftables is not usable for %s: missing kernel feature %s (requires %s): %v",
		e.Family, e.Feature, e.Need, e.Err)
}

// Unwrap returns the kernel's answer.
func (e *MissingError) Unwrap() error { return e.Err }
