// SPDX-License-Identifier: Apache-2.0

package service

import (
	"strings"
	"testing"
)

func TestCut(t *testing.T) {
	for _, c := range []struct {
		text  string
		limit int
		want  string
	}{
		{"", 3, ""},
		{"abcdef", 6, "abcdef"},
		{"abcdefg", 6, "abc…"},
		{"abcd", 3, "…"},
		{"aéé", 4, "a…"},                                 // the limit is inside the first é
		{"aééé", 6, "aé…"},                               // and here behind it
		{"日本語文", 9, "日本…"},                               // 12 bytes
		{"日本語文", 8, "日…"},                                // inside the second character
		{"日本語文", 7, "日…"},                                // inside the second character
		{"a😀😀", 8, "a😀…"},                                // four bytes each
		{"a😀😀", 7, "a…"},                                 // inside the first one
		{"\x80\x80\x80\x80\x80\x80\x80\x80", 7, "\x80…"}, // no UTF-8 at all: at most three bytes more go
	} {
		if got := Cut(c.text, c.limit); got != c.want || len(got) > max(c.limit, len(c.text)) {
			t.Errorf("Cut(%q, %d) = %q, want %q", c.text, c.limit, got, c.want)
		}
	}
	if got := Cut(strings.Repeat("x", 5000), 1024); len(got) != 1024 {
		t.Errorf("%d bytes, want 1024", len(got))
	}
}
