// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane/nftables/render"
	"github.com/sluice-proxy/sluice/dataplane/nftables/rules"
	"github.com/sluice-proxy/sluice/dataplane/nftables/wire"
	"github.com/sluice-proxy/sluice/service"
)

// Exists reports whether a family's table exists, Sluice's or kube-proxy's.
func Exists(ctx context.Context, family service.Family) (bool, error) {
	socket, err := wire.Open()
	if errors.Is(err, unix.EPROTONOSUPPORT) || errors.Is(err, unix.EAFNOSUPPORT) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	table, err := (&reader{d: &rules.Headers[family], socket: socket}).table(ctx)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EAFNOSUPPORT) {
		err = nil
	}
	if err != nil {
		err = fmt.Errorf("look for the %s table %s: %w", family, render.TableName, err)
	}
	return table != nil, errors.Join(err, socket.Close())
}

// Cleanup removes a family's table, Sluice's or kube-proxy's, and reports whether there was one. It also
// removes the table of a killed probe.
func Cleanup(family service.Family) (removed bool, err error) {
	err = commanding(func(socket Socket) error {
		d := &rules.Headers[family]
		removed, err = retireTable(socket, d)
		_, probeErr := deleteTable(socket, d, probeTable)
		return errors.Join(err, probeErr)
	})
	if err != nil {
		return removed, fmt.Errorf("remove the %s table %s: %w", family, render.TableName, err)
	}
	return removed, nil
}

// retireTable deletes Sluice's table and reports whether there was one. It deletes the rules first: the
// kernel runs the rules of a deleted base chain until it has unregistered the hook, and by then the
// elements of maps are gone (see stepFlushChain). Packets would not find their frontend any more, but
// still match the ClusterIP range, and be rejected although another backend already serves them.
func retireTable(socket Socket, d *rules.Header) (bool, error) {
	e := newEmitter(d, render.TableName)
	e.begin(unix.NFT_MSG_DELRULE, 0)
	if found, err := found(socket.Commit(e.t)); !found || err != nil {
		return found, err
	}
	return deleteTable(socket, d, render.TableName)
}

// deleteTable deletes a table and reports whether there was one.
func deleteTable(socket Socket, d *rules.Header, name string) (bool, error) {
	e := newEmitter(d, name)
	e.deleteTable()
	return found(socket.Commit(e.t))
}

// found reports whether a transaction that does not add a table found it.
func found(rejections []*wire.Rejection, err error) (bool, error) {
	if err != nil || len(rejections) == 0 {
		return err == nil, err
	}
	switch rejections[0].Errno {
	case unix.ENOENT, unix.EOPNOTSUPP, unix.EAFNOSUPPORT:
		return false, nil
	default:
		return false, rejections[0]
	}
}
