// SPDX-License-Identifier: Apache-2.0

package plural

import "testing"

func TestOf(t *testing.T) {
	for n, want := range map[int]string{0: "0 files", 1: "1 file", 2: "2 files"} {
		if got := Of(n, "file"); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	for noun, want := range map[string]string{"entry": "2 entries", "reply": "2 replies", "day": "2 days"} {
		if got := Of(2, noun); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
