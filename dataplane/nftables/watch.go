package nftables

import (
	"context"
	"errors"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/internal/netlink"
)

// Watch calls changed when somebody else has changed our table, with the process as
// the kernel tells it, and when so much has happened that the kernel could not tell
// all of it. It returns the context's error when that ends. What packets do to the
// sets of clients is no change.
//
// The kernel says who it was at the end of a transaction, so changed is called once
// for each, however much it has changed.
func (w *Writer) Watch(ctx context.Context, changed func(by dataplane.Stranger)) error {
	socket, err := w.open()
	if err != nil {
		return err
	}
	var listener *netlink.TableListener
	err = w.config.Inside(func() error {
		var err error
		listener, err = netlink.ListenTables(w.d.protocol, socket.Port())
		return err
	})
	if err != nil {
		return err
	}
	// Every message about a table's content begins with the table's name.
	const tableAttr = 1
	touched := false
	each := func(m netlink.Netfilter) {
		if pid, command, ends := netlink.Generation(m); !ends {
			touched = touched || m.Family == w.d.protocol && netlink.Find(m.Attrs, tableAttr).Text() == TableName
		} else if touched {
			touched = false
			changed(dataplane.Stranger{PID: pid, Command: command})
		}
	}
	err = listener.Run(ctx, each, func() { changed(dataplane.Stranger{}) })
	return errors.Join(err, listener.Close())
}
