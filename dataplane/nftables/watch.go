package nftables

import (
	"context"
	"errors"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/nftables/wire"
)

// Watch calls changed when somebody else has changed our table, and when so much
// has happened that the kernel could not tell all of it. It returns the context's
// error when that ends. What packets do to the sets of clients is no change.
func (w *Writer) Watch(ctx context.Context, changed func(by dataplane.Stranger)) error {
	socket, err := w.open()
	if err != nil {
		return err
	}
	var listener *wire.Listener
	err = w.config.Inside(func() error {
		var err error
		listener, err = wire.Listen(w.d.protocol, socket.Port())
		return err
	})
	if err != nil {
		return err
	}
	// Every message about a table's content begins with the table's name.
	const tableAttr = 1
	ours := func(m wire.Message) {
		if m.Family == w.d.protocol && wire.Find(m.Attrs, tableAttr).Text() == TableName {
			changed(dataplane.Stranger{})
		}
	}
	err = listener.Run(ctx, ours, func() { changed(dataplane.Stranger{}) })
	return errors.Join(err, listener.Close())
}
