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

// holdTable is a table that decides nothing. While it exists, the kernel tracks connections, and
// translates those that it has translated before: it forgets how to with the last chain of type
// nat. Connections that are open when rules come or go thus stay as they began.
const holdTable = "sluice-hold"

// Hold adds the table of a family that keeps open connections as they are. inside is that of
// WriterConfig. A kernel without nf_tables is left alone.
func Hold(family service.Family, inside func(func() error) error) error {
	err := commanding(inside, func(socket Socket) error { return hold(socket, &rules.Headers[family]) })
	if err != nil {
		return fmt.Errorf("keep open connections of %s: %w", family, err)
	}
	return nil
}

// Release removes what Hold has added, and reports whether there was something. The kernel forgets
// translated connections, unless another program's rules need them.
func Release(family service.Family, inside func(func() error) error) (released bool, err error) {
	err = commanding(inside, func(socket Socket) (err error) {
		released, err = deleteTable(socket, &rules.Headers[family], holdTable)
		return err
	})
	if err != nil {
		return released, fmt.Errorf("remove the %s table %s: %w", family, holdTable, err)
	}
	return released, nil
}

func hold(socket Socket, d *rules.Header) error {
	e := newEmitter(d)
	e.table = holdTable
	e.addTable("")
	e.deleteTable() // one that was there; the kernel registers new hooks before it removes old ones
	e.addTable("")
	for _, c := range render.HoldChains(d.Family) {
		e.addWhole(c)
	}
	e.finish()
	refusals, err := socket.Commit(e.t)
	if err == nil && len(refusals) > 0 {
		err = refusals[0]
	}
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EAFNOSUPPORT) {
		return nil // the family has no nf_tables
	}
	return err
}

// commanding calls a function with a socket, unless the kernel has no nf_tables.
func commanding(inside func(func() error) error, command func(Socket) error) error {
	if inside == nil {
		inside = here
	}
	return inside(func() error {
		socket, err := wire.Open()
		if errors.Is(err, unix.EPROTONOSUPPORT) || errors.Is(err, unix.EAFNOSUPPORT) {
			return nil
		}
		if err != nil {
			return err
		}
		return errors.Join(command(socket), socket.Close())
	})
}
