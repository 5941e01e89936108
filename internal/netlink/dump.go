package netlink

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// dumpPause is between two attempts at a list: whoever changes it may be done by then.
const dumpPause = time.Millisecond

// Dump calls list until what it read is complete: nothing was changed meanwhile (ErrInterrupted), and no part of the reply
// was lost (ErrUnanswered). It passes on any other error, and gives up after some attempts. List starts over each time.
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
