// SPDX-License-Identifier: Apache-2.0

package netlink

import (
	"context"
	"errors"
	"fmt"
	"testing"
)

// TestDump_Incomplete: Dump reads a list again while it is incomplete, up to a limit. Another error and the end of the
// context end the attempts.
func TestDump_Incomplete(t *testing.T) {
	other := errors.New("another error")
	ended, end := context.WithCancel(t.Context())
	end()
	torn, lost := fmt.Errorf("list: %w", ErrInterrupted), fmt.Errorf("list: %w", ErrUnanswered)
	for name, c := range map[string]struct {
		ctx  context.Context
		errs []error
		want error
	}{
		"complete":         {t.Context(), []error{nil}, nil},
		"torn, then lost":  {t.Context(), []error{torn, lost, nil}, nil},
		"another error":    {t.Context(), []error{torn, other}, other},
		"too often":        {t.Context(), []error{torn, torn, torn}, ErrInterrupted},
		"the context ends": {ended, []error{torn}, context.Canceled},
	} {
		attempts := 0
		err := Dump(c.ctx, 3, func() error { attempts++; return c.errs[attempts-1] })
		if !errors.Is(err, c.want) || attempts != len(c.errs) {
			t.Errorf("%s: %d attempts, %v", name, attempts, err)
		}
	}
}
