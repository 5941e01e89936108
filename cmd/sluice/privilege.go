package main

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// needPrivilege tells in one line that this process cannot change the rules of
// its network namespace, before every tool says so in its own words.
func needPrivilege(instead string) error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData // version 3 has two halves of 32 capabilities
	if err := unix.Capget(&header, &data[0]); err != nil {
		return fmt.Errorf("cannot read this process's capabilities: %w", err)
	}
	if data[0].Effective&(1<<unix.CAP_NET_ADMIN) == 0 {
		return errors.New("changing this host's rules needs root (CAP_NET_ADMIN)" + instead)
	}
	return nil
}
