package harness

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Generation returns the number that the kernel's nf_tables raises with every committed change in a
// namespace. Two equal numbers prove that nothing at all was written in between, through nftables, through
// iptables (in its nf_tables variant, the usual one) or otherwise. The older iptables-legacy does not
// count here; a test notices, because the number stays the same when it must grow.
func Generation(h *Host) (uint32, error) {
	number, err := generationInside(h)
	if err != nil {
		return 0, fmt.Errorf("nf_tables generation in netns %s: %w", h.Name(), err)
	}
	return number, nil
}

func generationInside(h *Host) (uint32, error) {
	var replies [][]byte
	err := h.Do(func() error {
		message := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_GETGEN, 0)
		message.AddData(&nl.Nfgenmsg{NfgenFamily: unix.AF_UNSPEC, Version: nl.NFNETLINK_V0})
		var err error
		replies, err = message.Execute(unix.NETLINK_NETFILTER, unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_NEWGEN)
		return err
	})
	if err != nil {
		return 0, err
	}
	for _, reply := range replies {
		attributes, err := attributesOf(reply[nl.SizeofNfgenmsg:])
		if err != nil {
			return 0, err
		}
		if number := attributes[unix.NFTA_GEN_ID]; len(number) == 4 {
			return binary.BigEndian.Uint32(number), nil
		}
	}
	return 0, errors.New("the kernel's answer holds no number")
}
