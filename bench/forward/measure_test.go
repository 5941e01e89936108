package main

import (
	"testing"
	"time"
)

func TestTable(t *testing.T) {
	one := sample{connectMedian: time.Millisecond, bytes: 2e9, attempted: 10, lost: 1}
	two := sample{connectMedian: 3 * time.Millisecond, bytes: 4e9, attempted: 10, lost: 2}
	rows := table(map[string][]sample{"nftables": {one, two, two}, "userspace": {one}}).Rows
	if got := rows[0]; got[1] != "3ms" || got[2] != "1ms" {
		t.Errorf("median %v", got)
	}
	if got := rows[len(rows)-2]; got[1] != "5" || got[2] != "1" {
		t.Errorf("sum %v", got)
	}
}
