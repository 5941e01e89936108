package play

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-proxy/sluice/test/scenarios/network"
)

// What comes true by and by, as a program on the node tells.
var _ = define("await", verb{usage: `await 30s sh -c "! ipvsadm -Ln | grep 10.244.1.10" (until its status is 0)`, kernel: true, parse: parseAwait})

// awaitStep is the pause between two runs of the program.
const awaitStep = 500 * time.Millisecond

func parseAwait(words []string) (statement, error) {
	if len(words) < 2 {
		return nil, errors.New("want a time and a program")
	}
	limit, err := time.ParseDuration(words[0])
	if err != nil {
		return nil, err
	}
	return settled(func(ctx context.Context, _ *Stage, w *network.World) error {
		for deadline := time.Now().Add(limit); ; {
			_, err := w.Run(ctx, words[1], words[2:]...)
			if err == nil {
				return nil
			}
			if time.Now().After(deadline) {
				return fmt.Errorf("not within %v: %w", limit, err)
			}
			if err := sleep(ctx, awaitStep); err != nil {
				return err
			}
		}
	}), nil
}
