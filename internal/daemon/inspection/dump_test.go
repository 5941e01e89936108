// SPDX-License-Identifier: Apache-2.0

package inspection

import (
	"bytes"
	"strings"
	"testing"
)

// TestTool_CombinedOutput: the output and the errors of a tool are one text with every line of both.
func TestTool_CombinedOutput(t *testing.T) {
	var text bytes.Buffer
	both := tool{Command: []string{"sh", "-c", "for i in $(seq 500); do echo out; echo error >&2; done"}}
	if err := both.run(t.Context(), &text); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"out\n", "error\n"} {
		if got := strings.Count(text.String(), line); got != 500 {
			t.Errorf("%d times %q, want 500", got, line)
		}
	}
	if want := 500 * len("out\nerror\n"); text.Len() != want {
		t.Errorf("%d bytes, want %d", text.Len(), want)
	}
}
