package nftables

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane/nftables/wire"
	"github.com/sluice-proxy/sluice/service"
)

// Cleanup removes a family's table, ours or kube-proxy's, and tells whether there
// was one. With it goes what a probe that was killed has left. A kernel without
// nf_tables has neither. The function inside is that of WriterConfig; nil for the
// process's own namespace.
func Cleanup(family service.Family, inside func(func() error) error) (removed bool, err error) {
	if inside == nil {
		inside = func(f func() error) error { return f() }
	}
	err = inside(func() error {
		socket, err := wire.Open()
		if errors.Is(err, unix.EPROTONOSUPPORT) || errors.Is(err, unix.EAFNOSUPPORT) {
			return nil
		}
		if err != nil {
			return err
		}
		removed, err = deleteTable(socket, dialects[family])
		_, probeErr := deleteNamed(socket, dialects[family], probeTable)
		return errors.Join(err, probeErr, socket.Close())
	})
	if err != nil {
		return removed, fmt.Errorf("remove the %s table %s: %w", family, TableName, err)
	}
	return removed, nil
}

// deleteTable removes the table of a proxy, and tells whether there was one.
func deleteTable(socket Socket, d *dialect) (bool, error) { return deleteNamed(socket, d, TableName) }

func deleteNamed(socket Socket, d *dialect, name string) (bool, error) {
	e := newEmitter(d)
	e.table = name
	e.deleteTable()
	refusals, err := socket.Commit(e.t)
	switch {
	case err != nil:
		return false, err
	case len(refusals) == 0:
		return true, nil
	case errors.Is(refusals[0], unix.ENOENT), errors.Is(refusals[0], unix.EOPNOTSUPP), errors.Is(refusals[0], unix.EAFNOSUPPORT):
		return false, nil
	default:
		return false, refusals[0]
	}
}
