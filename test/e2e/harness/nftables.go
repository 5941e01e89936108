package harness

import (
	"encoding/binary"
	"fmt"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Generation returns the number that the kernel's nf_tables raises with every committed change in a
// namespace. Two equal numbers prove that nothing at all was written in between, through iptables (in
// its nf_tables variant, the usual one) or otherwise. The older iptables-legacy does not count here; a
// test notices, because the number stays the same when it must grow.
func Generation(h *Host) (uint32, error) {
	replies, err := askNFTables(h, unix.NFT_MSG_GETGEN, unix.NFT_MSG_NEWGEN, 0, unix.AF_UNSPEC)
	if err != nil {
		return 0, fmt.Errorf("nf_tables generation in netns %s: %w", h.Name(), err)
	}
	for _, attrs := range replies {
		if number := attrs[unix.NFTA_GEN_ID]; len(number) == 4 {
			return binary.BigEndian.Uint32(number), nil
		}
	}
	return 0, fmt.Errorf("nf_tables generation in netns %s: the kernel's answer holds no number", h.Name())
}

// nftChain names a chain of one family.
type nftChain struct {
	table, name string
}

// ruleHandles returns the handles of all rules of one family, in order within each chain.
func ruleHandles(h *Host, family uint8) (map[nftChain][]uint64, error) {
	rules, err := askNFTables(h, unix.NFT_MSG_GETRULE, unix.NFT_MSG_NEWRULE, unix.NLM_F_DUMP, family)
	if err != nil {
		return nil, fmt.Errorf("nf_tables rules in netns %s: %w", h.Name(), err)
	}
	handles := make(map[nftChain][]uint64)
	for _, attrs := range rules {
		handle := attrs[unix.NFTA_RULE_HANDLE]
		if len(handle) != 8 {
			return nil, fmt.Errorf("nf_tables rules in netns %s: a rule without a handle", h.Name())
		}
		chain := nftChain{nl.BytesToString(attrs[unix.NFTA_RULE_TABLE]), nl.BytesToString(attrs[unix.NFTA_RULE_CHAIN])}
		handles[chain] = append(handles[chain], binary.BigEndian.Uint64(handle))
	}
	return handles, nil
}

// askNFTables sends one request to nf_tables inside the host's namespace and returns the attributes of
// each answer, by type.
func askNFTables(h *Host, request, answer, flags int, family uint8) ([]map[uint16][]byte, error) {
	var replies [][]byte
	err := h.Do(func() error {
		message := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_NFTABLES<<8|request, flags)
		message.AddData(&nl.Nfgenmsg{NfgenFamily: family, Version: nl.NFNETLINK_V0})
		var err error
		replies, err = message.Execute(unix.NETLINK_NETFILTER, uint16(unix.NFNL_SUBSYS_NFTABLES<<8|answer))
		return err
	})
	if err != nil {
		return nil, err
	}
	var all []map[uint16][]byte
	for _, reply := range replies {
		attrs, err := nl.ParseRouteAttr(reply[nl.SizeofNfgenmsg:])
		if err != nil {
			return nil, err
		}
		byType := make(map[uint16][]byte, len(attrs))
		for _, attr := range attrs {
			byType[attr.Attr.Type&nl.NLA_TYPE_MASK] = attr.Value
		}
		all = append(all, byType)
	}
	return all, nil
}
