// SPDX-License-Identifier: Apache-2.0

package setup

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// NeedPrivilege returns an error of one line if this process cannot change the rules of its network namespace. Without
// this check, each tool would fail with a different error.
func NeedPrivilege(instead string) error {
	held, err := Capabilities()
	if err != nil {
		return err
	}
	if held&(1<<unix.CAP_NET_ADMIN) == 0 {
		return errors.New("changing rules on this host requires root or CAP_NET_ADMIN" + instead)
	}
	return nil
}

// Capabilities returns the effective capabilities with numbers below 32.
func Capabilities() (uint32, error) {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData // version 3 has two halves of 32 capabilities
	if err := unix.Capget(&header, &data[0]); err != nil {
		return 0, fmt.Errorf("cannot read this process's capabilities: %w", err)
	}
	return data[0].Effective, nil
}
