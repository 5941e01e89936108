// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane/nftables/render"
	"github.com/sluice-proxy/sluice/dataplane/nftables/rules"
	"github.com/sluice-proxy/sluice/dataplane/nftables/wire"
	"github.com/sluice-proxy/sluice/service"
)

// preserveTable is a table without effect on packets. While it exists, the kernel tracks connections and
// keeps translating those that it translated before, which it stops with the last chain of type nat.
// Connections that are open while rules are added or removed therefore do not change.
const preserveTable = "sluice-hold"

// PreserveConnections adds a table to a family that keeps open connections as they are. Without nf_tables in the
// kernel, it does nothing.
func PreserveConnections(family service.Family) error {
	err := commanding(func(socket Socket) error { return preserve(socket, &rules.Headers[family]) })
	if err != nil {
		return fmt.Errorf("keep open connections of %s: %w", family, err)
	}
	return nil
}

// StopPreserving removes the table of PreserveConnections, and reports whether there was one. The
// kernel forgets translated connections, unless the rules of another program need them.
func StopPreserving(family service.Family) (removed bool, err error) {
	err = commanding(func(socket Socket) (err error) {
		removed, err = deleteTable(socket, &rules.Headers[family], preserveTable)
		return err
	})
	if err != nil {
		return removed, fmt.Errorf("remove the %s table %s: %w", family, preserveTable, err)
	}
	return removed, nil
}

func preserve(socket Socket, d *rules.Header) error {
	e := newEmitter(d, preserveTable)
	e.addTable("")
	e.deleteTable() // an old one, if any; the kernel registers new hooks before it removes old ones
	e.addTable("")
	for _, c := range render.PreserveChains(d.Family) {
		e.addWhole(c)
	}
	err := e.commit(socket)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EAFNOSUPPORT) {
		return nil // the family has no nf_tables
	}
	return err
}

// commanding calls command with a socket. It does nothing if the kernel has no nf_tables.
func commanding(command func(Socket) error) error {
	socket, err := wire.Open()
	if errors.Is(err, unix.EPROTONOSUPPORT) || errors.Is(err, unix.EAFNOSUPPORT) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(command(socket), socket.Close())
}
