// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane/nftables/render"
	"github.com/sluice-proxy/sluice/dataplane/nftables/rules"
	"github.com/sluice-proxy/sluice/dataplane/nftables/wire"
	"github.com/sluice-proxy/sluice/internal/netlink"
)

// offloadTable is the table with the flowtable and the chain that fills it. It is separate from the table of the
// Services, because the kernel rejects a transaction if a device vanishes, which must not delay rules. The socket owns
// the table: no other program can change it, and the kernel removes it with the socket. A killed process therefore
// leaves no table, and audits need not check it.
const offloadTable = "sluice-offload"

// offloadHeader is for one table for both families, so that each device is hooked once.
var offloadHeader = rules.Header{Name: "inet", Protocol: unix.NFPROTO_INET}

// Attributes and flags that package unix does not name (linux/netfilter/nf_tables.h).
const (
	tableOwner = 1 << 1 // NFT_TABLE_F_OWNER, Linux 5.12

	flowtableName     = 2      // NFTA_FLOWTABLE_NAME
	flowtableHook     = 3      // NFTA_FLOWTABLE_HOOK
	flowtableFlags    = 7      // NFTA_FLOWTABLE_FLAGS
	flowtableCounter  = 1 << 1 // NFT_FLOWTABLE_COUNTER, Linux 5.7
	flowtableHookNum  = 1      // NFTA_FLOWTABLE_HOOK_NUM
	flowtablePriority = 2      // NFTA_FLOWTABLE_HOOK_PRIORITY
	flowtableDevices  = 3      // NFTA_FLOWTABLE_HOOK_DEVS
	deviceName        = 1      // NFTA_DEVICE_NAME
)

// offloadTimeout is a sysctl of kernels that give an idle offloaded connection the usual timeout.
const offloadTimeout = "/proc/sys/net/netfilter/nf_flowtable_tcp_timeout"

// devicesMax limits the devices of one transaction, because the kernel announces them in one message of 4 KiB.
const devicesMax = 64

// Device is a network device. If it is renamed, or replaced by one with the same name, that is a different Device.
type Device struct {
	Index int
	Name  string
}

// NoOffloadError means that the kernel cannot offload connections.
type NoOffloadError struct{ Err error }

// Error names the required kernel.
func (e *NoOffloadError) Error() string {
	return fmt.Sprintf("the kernel cannot offload connections (requires Linux 5.15 with CONFIG_NF_FLOW_TABLE_INET and CONFIG_NFT_FLOW_OFFLOAD): %v", e.Err)
}

// Unwrap returns the kernel's answer.
func (e *NoOffloadError) Unwrap() error { return e.Err }

// Offload is the flowtable of TCP connections to Services. On its devices, the packets of these connections bypass
// netfilter and routing. Only one goroutine at a time may use it.
type Offload struct {
	socket *wire.Socket
	hooked map[Device]bool
}

// CheckOffload returns a *NoOffloadError if the kernel cannot offload. It changes nothing: one transaction adds
// and removes a table.
func CheckOffload() error {
	socket, err := wire.Open()
	if err != nil {
		return err
	}
	e := newEmitter(&offloadHeader, probeTable)
	buildOffload(e)
	e.deleteTable()
	if err = e.commit(socket); err == nil {
		_, err = os.Stat(offloadTimeout)
	}
	if err != nil && !netlink.Busy(err) && !errors.Is(err, unix.EPERM) {
		err = &NoOffloadError{err}
	}
	return errors.Join(err, socket.Close())
}

// NewOffload adds the table, with a flowtable that has no device. It fails while another process owns the table.
func NewOffload() (*Offload, error) {
	socket, err := wire.Open()
	if err != nil {
		return nil, err
	}
	e := newEmitter(&offloadHeader, offloadTable)
	buildOffload(e)
	if err := e.commit(socket); err != nil {
		return nil, errors.Join(fmt.Errorf("add the table %s: %w", offloadTable, err), socket.Close())
	}
	return &Offload{socket: socket, hooked: map[Device]bool{}}, nil
}

// Close removes the table. The packets of its connections then pass netfilter and routing again.
func (o *Offload) Close() error {
	e := newEmitter(&offloadHeader, offloadTable)
	e.deleteTable()
	return errors.Join(e.commit(o.socket), o.socket.Close())
}

// Devices returns the number of devices in the flowtable.
func (o *Offload) Devices() int { return len(o.hooked) }

// Follow changes the flowtable to contain exactly the devices. It ignores devices that do not exist.
func (o *Offload) Follow(devices []Device) error {
	want := map[Device]bool{}
	for _, d := range devices {
		want[d] = true
	}
	// Kernels before Linux 6.16 remove a device that vanishes from the flowtable. Later ones keep its name.
	gone := slices.DeleteFunc(slices.Collect(maps.Keys(o.hooked)), func(d Device) bool { return want[d] })
	fresh := slices.DeleteFunc(slices.Collect(maps.Keys(want)), func(d Device) bool { return o.hooked[d] })
	errGone := o.change(unix.NFT_MSG_DELFLOWTABLE, gone, func(d Device, _ bool) { delete(o.hooked, d) })
	return errors.Join(errGone, o.change(unix.NFT_MSG_NEWFLOWTABLE, fresh, func(d Device, there bool) {
		if there {
			o.hooked[d] = true
		}
	}))
}

// change adds devices to the flowtable or removes them, and calls done with each device and with whether the kernel
// knows it. The kernel rejects a transaction with a missing device, so change then sends its devices one by
// one.
func (o *Offload) change(kind uint16, devices []Device, done func(d Device, there bool)) error {
	var failed []error
	for part := range slices.Chunk(devices, devicesMax) {
		err := o.send(kind, part)
		for _, d := range part {
			single := err
			if err != nil && len(part) > 1 {
				single = o.send(kind, []Device{d})
			}
			switch {
			case single == nil || errors.Is(single, unix.ENOENT):
				done(d, single == nil)
			default:
				failed = append(failed, fmt.Errorf("device %s: %w", d.Name, single))
			}
		}
	}
	return errors.Join(failed...)
}

// send adds or removes devices in one transaction.
func (o *Offload) send(kind uint16, devices []Device) error {
	e := newEmitter(&offloadHeader, offloadTable)
	flowtable(e, kind, devices)
	return e.commit(o.socket)
}

// buildOffload adds the table with everything but devices.
func buildOffload(e *emitter) {
	e.addTable(string(netlink.AppendUint32(nil, unix.NFTA_TABLE_FLAGS, tableOwner)))
	flowtable(e, unix.NFT_MSG_NEWFLOWTABLE, nil)
	e.addWhole(render.OffloadChain())
}

// flowtable adds a message about the flowtable.
func flowtable(e *emitter, kind uint16, devices []Device) {
	flags := uint16(0)
	if kind == unix.NFT_MSG_NEWFLOWTABLE {
		flags = unix.NLM_F_CREATE
	}
	e.begin(kind, flags)
	e.t.Text(flowtableName, render.OffloadFlowtable)
	hook := e.t.Nest(flowtableHook)
	e.t.Uint32(flowtableHookNum, unix.NF_NETDEV_INGRESS)
	e.t.Uint32(flowtablePriority, 0)
	if len(devices) > 0 {
		list := e.t.Nest(flowtableDevices)
		for _, d := range devices {
			e.t.Text(deviceName, d.Name)
		}
		e.t.Unnest(list)
	}
	e.t.Unnest(hook)
	if kind == unix.NFT_MSG_NEWFLOWTABLE {
		// If conntrack counts packets, it then also counts those of offloaded connections.
		e.t.Uint32(flowtableFlags, flowtableCounter)
	}
}
