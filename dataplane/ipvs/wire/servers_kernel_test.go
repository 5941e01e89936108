// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"errors"
	"strings"
	"testing"
)

// TestLookUp_MissingFamily: lookUp returns ErrUnavailable for a family that no kernel has, and the number of one that
// every kernel has.
func TestLookUp_MissingFamily(t *testing.T) {
	if _, err := lookUp("NO-SUCH-FAMILY"); !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "ip_vs") {
		t.Errorf("got %v", err)
	}
	const controller = 0x10
	if got, err := lookUp("nlctrl"); err != nil || got != controller {
		t.Errorf("the controller is %#x, %v", got, err)
	}
}

// TestKernelOpenServers_WithoutIPVS: OpenServers fails with ErrUnavailable exactly if the kernel has no IPVS.
func TestKernelOpenServers_WithoutIPVS(t *testing.T) {
	available := Available()
	servers, err := OpenServers()
	if errors.Is(err, ErrUnavailable) != errors.Is(available, ErrUnavailable) {
		t.Errorf("available: %v, opened: %v", available, err)
	}
	if err == nil {
		if err := servers.Close(); err != nil {
			t.Error(err)
		}
	}
}
