package play

import (
	"context"
	"errors"
	"fmt"
	"strconv"
)

// The size that a machine's table of connections gets.
var _ = define("sizes", verb{usage: "sizes 4 131072 (processors, and the largest number of connections)", kernel: true, parse: parseSizes})

func parseSizes(words []string) (statement, error) {
	if len(words) != 2 {
		return nil, errors.New("want the number of processors and that of connections")
	}
	processors, err := strconv.Atoi(words[0])
	if err != nil {
		return nil, err
	}
	return act(func(ctx context.Context, s *Stage) error {
		w, err := s.kernel()
		if err != nil {
			return err
		}
		got, err := w.TableSize(ctx, processors)
		if err == nil && got != words[1] {
			err = fmt.Errorf("with %d processors nf_conntrack_max is set to %q, want %s", processors, got, words[1])
		}
		return err
	}), nil
}
