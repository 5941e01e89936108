// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane/iptables/render"
	"github.com/sluice-proxy/sluice/service"
)

// Forward is chain FORWARD of the legacy table filter.
type Forward struct {
	// Drops is set if the policy is DROP.
	Drops bool
	Rules []ForwardRule
}

// ForwardRule describes what a rule of the chain does with a new connection.
type ForwardRule struct {
	// Accepts is set if the target is ACCEPT. Chain is the chain that the rule jumps to; empty for none.
	Accepts bool
	Chain   string
	// NotNew is set if the rule matches no new connections.
	NotNew bool
}

// LegacyForward reads chain FORWARD of the legacy table filter in the network namespace of the calling thread, without
// running iptables. It returns nil if the table does not exist or this process may not list the tables, because a
// request for a missing table would create it.
func LegacyForward(family service.Family) (*Forward, error) {
	const table, attempts = render.Filter, 3
	if !slices.Contains(LegacyTables(family), string(table)) {
		return nil, nil
	}
	err := error(unix.EAGAIN)
	// The table may change between the two requests.
	for attempt := 0; attempt < attempts && errors.Is(err, unix.EAGAIN); attempt++ {
		var info tableInfo
		var entries []byte
		if info, err = readInfo(family, table); err == nil {
			if entries, err = readEntries(family, &info); err == nil {
				return parseForward(family, &info, entries)
			}
		}
	}
	return nil, fmt.Errorf("read the policy of FORWARD of iptables-legacy for %s: %w", family, err)
}

// readEntries reads struct ipt_get_entries or struct ip6t_get_entries (the name and the size of the table, and its
// entries), and returns the entries.
func readEntries(family service.Family, info *tableInfo) ([]byte, error) {
	const soGetEntries, head = soGetInfo + 1, 40
	answer := make([]byte, head+int(info.size))
	copy(answer, info.name[:])
	binary.NativeEndian.PutUint32(answer[len(info.name):], info.size)
	err := getOption(family, soGetEntries, unsafe.Pointer(&answer[0]), uint32(len(answer)))
	return answer[head:], err
}

// parseForward finds the chain in the entries of the table. Each is a struct ipt_entry or ip6t_entry, then matches,
// then one target. The last entry of a built-in chain is its policy, and the first entry of another chain has its name.
func parseForward(family service.Family, info *tableInfo, table []byte) (*Forward, error) {
	// At offsets, an entry has the offset of its target and that of the next entry. The verdict, or the name of a
	// chain, follows the header of the target.
	offsets, head := 88, 112
	if family == service.IPv6 {
		offsets, head = 140, 168
	}
	const targetHead, hook = 32, 2 // NF_INET_FORWARD
	f, chains := &Forward{}, map[int]string{}
	var jumps []int // by rule
	for at := 0; at < len(table); {
		entry := table[at:]
		if len(entry) < head {
			return nil, errors.New("an entry of the legacy table filter is cut off")
		}
		target, next := int(binary.NativeEndian.Uint16(entry[offsets:])), int(binary.NativeEndian.Uint16(entry[offsets+2:]))
		if target < head || next < target+targetHead+4 || next > len(entry) {
			return nil, errors.New("an entry of the legacy table filter has no valid target")
		}
		name, verdict := text(entry[target+2:target+targetHead-1]), 0
		switch name {
		case "": // the standard target: an offset in the table, or the complement of a verdict
			verdict = int(int32(binary.NativeEndian.Uint32(entry[target+targetHead:])))
		case "ERROR":
			chains[at+next] = text(entry[target+targetHead : next])
		}
		const drop, accept = -1, -2
		switch here := uint32(at); {
		case here == info.underflow[hook]:
			f.Drops = name == "" && verdict == drop
		case here >= info.hookEntry[hook] && here < info.underflow[hook]:
			f.Rules = append(f.Rules, ForwardRule{Accepts: name == "" && verdict == accept, NotNew: notNew(entry[head:target])})
			jumps = append(jumps, max(0, verdict))
		}
		at += next
	}
	for i, to := range jumps {
		f.Rules[i].Chain = chains[to] // no chain begins at 0
	}
	return f, nil
}

// notNew reports whether one of the matches excludes new connections: state, or conntrack from revision 1 on.
func notNew(matches []byte) bool {
	const head, byState, stateNew = 32, 1, 8 // XT_CONNTRACK_STATE, XT_CONNTRACK_STATE_BIT(IP_CT_NEW)
	const flags, inverted, states = 146, 148, 150
	for len(matches) >= head {
		size := int(binary.NativeEndian.Uint16(matches))
		if size < head || size > len(matches) {
			break
		}
		data := matches[head:size]
		switch name, revision := text(matches[2:head-1]), matches[head-1]; {
		case name == "state" && len(data) >= 4:
			if binary.NativeEndian.Uint32(data)&stateNew == 0 {
				return true
			}
		case name == "conntrack" && revision > 0 && len(data) >= states+2:
			mask := uint16(data[states])
			if revision > 1 {
				mask = binary.NativeEndian.Uint16(data[states:])
			}
			isInverted := binary.NativeEndian.Uint16(data[inverted:])&byState != 0
			if binary.NativeEndian.Uint16(data[flags:])&byState != 0 && (mask&stateNew == 0) != isInverted {
				return true
			}
		}
		matches = matches[size:]
	}
	return false
}

// text returns what precedes the first zero byte.
func text(b []byte) string {
	before, _, _ := bytes.Cut(b, []byte{0})
	return string(before)
}
