// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"errors"
	"testing"
)

// TestOthers_RemainUntilRemoved: rules of others remain until they are removed. Servers of one kind inherit this state,
// and a change of the mode resets it.
func TestOthers_RemainUntilRemoved(t *testing.T) {
	var o others
	for i, c := range []struct {
		do   func()
		want error
	}{
		{func() { o.begin("nftables ") }, errOthersRemain},
		{func() { o.ended(errors.New("no iptables")) }, errOthersStay},
		{func() { o.begin("nftables ") }, errOthersStay},
		{func() { o.ended(nil) }, nil},
		{func() { o.begin("nftables ") }, nil},
		{func() { o.begin("iptables nft") }, errOthersRemain},
		{func() { o.begin("nftables ") }, errOthersRemain},
	} {
		if c.do(); !errors.Is(o.remain(), c.want) {
			t.Errorf("step %d: %v", i, o.remain())
		}
	}
}
