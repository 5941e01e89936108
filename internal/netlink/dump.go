// SPDX-License-Identifier: Apache-2.0

package netlink

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// dumpPause is the pause between two attempts to read a list, in which the changes may end.
const dumpPause = time.Millisecond

// Dump calls list until the reply is complete. A reply is incomplete if the kernel's table was changed meanwhile
// (ErrInterrupted), or if a part of the reply was lost (ErrUnanswered). Dump returns any other error, and stops after
// the given number of attempts. Each call of list must discard the entries of the previous one.
func Dump(ctx context.Context, attempts int, list func() error) error {
	for attempt := 1; ; attempt++ {
		err := list()
		switch {
		case !errors.Is(err, ErrInterrupted) && !errors.Is(err, ErrUnanswered):
			return err
		case attempt == attempts:
			return fmt.Errorf("%d times: %w", attempts, err)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(dumpPause):
		}
	}
}
