// SPDX-License-Identifier: Apache-2.0

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

// probeTable is the table in which features are tried. The transaction that adds it also removes it,
// except for rejectEarly, which removes it in a later transaction. If a probe is killed, the first
// transaction of the next probe, or Cleanup, removes the table.
const probeTable = "sluice-probe"

// Probe tests whether the kernel has all features that a family's rules need. The function inside is as
// in WriterConfig. Probe blocks for milliseconds. It returns a *MissingError for each missing
// feature, joined.
func Probe(family service.Family, inside netlink.Inside) error {
	return probing(family, inside, (*prober).probe)
}

// Check is Probe for a process that must not change the kernel: no other program can see its
// tests, because each transaction removes the table that it adds.
func Check(family service.Family) error {
	return probing(family, nil, (*prober).check)
}

// CheckHashing is Check for the additional features that hashing Services need.
func CheckHashing(family service.Family) error {
	return probing(family, nil, func(p *prober) error { return p.each(render.Hashing(family)) })
}

func probing(family service.Family, inside netlink.Inside, probe func(*prober) error) error {
	var socket *wire.Socket
	if err := inside.Do(func() error {
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

// each tries all features. If the first one is missing, so are all others, and it returns only one error.
func (p *prober) each(features []render.Feature) error {
	var missing []error
	for i, f := range features {
		err := p.try(f)
		if netlink.Busy(err) || errors.Is(err, unix.EPERM) {
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

// try adds objects that need the feature, and removes them in the same transaction.
func (p *prober) try(f render.Feature) error {
	e := p.emitter()
	for _, s := range f.Sets {
		e.addSet(s.ID.Name, s.Body)
	}
	if len(f.Chain.Rules) > 0 {
		e.addWhole(f.Chain)
	}
	e.deleteTable()
	return e.commit(p.socket)
}

// emitter begins a transaction that adds the table.
func (p *prober) emitter() *emitter {
	e := newEmitter(p.d, probeTable)
	e.addTable(string(netlink.AppendUint32(nil, unix.NFTA_TABLE_FLAGS, 0)))
	return e
}

// rejectEarly tries to reject before routing. It removes the table in a second transaction, because the
// kernel validates only what a transaction leaves. The table is dormant: no packet passes it.
func (p *prober) rejectEarly() error {
	make := newEmitter(p.d, probeTable)
	make.addTable(string(netlink.AppendUint32(nil, unix.NFTA_TABLE_FLAGS, unix.NFT_TABLE_F_DORMANT)))
	make.addWhole(render.EarlyReject(p.d.Family))
	err := make.commit(p.socket)
	if netlink.Busy(err) || errors.Is(err, unix.EPERM) {
		return fmt.Errorf("probe the kernel: %w", err)
	}
	if err != nil {
		return &MissingError{Family: p.d.Family, Feature: "reject before routing", Need: "Linux 5.9", Err: err}
	}
	_, err = deleteTable(p.socket, p.d, probeTable)
	return err
}

// MissingError means that the kernel lacks a feature that a family needs. A retry does not
// help until the administrator changes the node.
type MissingError struct {
	Family service.Family
	// Feature is the missing feature.
	Feature string
	// Need is the kernel version or build option that has the feature.
	Need string
	// Err is the kernel's answer.
	Err error
}

// Error names the feature and the required kernel.
func (e *MissingError) Error() string {
	return fmt.Sprintf("nftables is not usable for %s: missing kernel feature %s (requires %s): %v",
		e.Family, e.Feature, e.Need, e.Err)
}

// Unwrap returns the kernel's answer.
func (e *MissingError) Unwrap() error { return e.Err }
