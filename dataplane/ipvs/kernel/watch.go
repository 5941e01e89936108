// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"errors"

	"github.com/sluice-proxy/sluice/dataplane"
)

// Watch calls changed when another program changed the device, and when the rules' writer
// notices a change, until the context ends. The kernel does not announce changes of
// virtual servers and sets; the next Read finds them.
func (w *Writer) Watch(ctx context.Context, changed func(by dataplane.ForeignProcess)) error {
	announced := func() { changed(dataplane.ForeignProcess{}) }
	if w.config.Rules.Watch == nil {
		return w.device.Watch(ctx, announced)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	ended := make(chan error, 1)
	go func() {
		err := w.config.Rules.Watch(ctx, changed)
		cancel(err) // if one of the two watches fails, both end
		ended <- err
	}()
	err := w.device.Watch(ctx, announced)
	cancel(err)
	if other := <-ended; !errors.Is(err, other) {
		err = errors.Join(err, other)
	}
	return err
}
