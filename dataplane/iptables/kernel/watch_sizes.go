// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/iptables/render"
	"github.com/sluice-proxy/sluice/dataplane/iptables/rules"
	"github.com/sluice-proxy/sluice/service"
)

// size is the size of a table in the kernel. It does not show that a rule was replaced by another one
// of the same size; the periodic audit finds that.
type size struct {
	entries, bytes uint32
}

// sizes tracks the sizes that the tables have if only the writer changes them. Only the holder of the
// writer's turn may use it.
//
// Invariant: a change that no Read has seen, and that the writer's own writes do not explain, sets
// touched. A deletion by another program at the same time as a write is found by comparing the size
// after the write with the expected size.
type sizes struct {
	tool Tool
	// known has the tables' sizes at the last Read, look or write, without tables of unknown size.
	known map[render.Table]size
	// touched is set if another program changed a table and no Read has succeeded since.
	touched bool
}

func newSizes(tool Tool) *sizes { return &sizes{tool: tool, known: make(map[render.Table]size)} }

// look compares all tables with their known sizes.
func (s *sizes) look() {
	for table, known := range s.known {
		if now, ok := s.tool.TableSize(table); ok && now != known {
			s.known[table], s.touched = now, true
		}
	}
}

// measure returns the size of each table that has one.
func (s *sizes) measure() map[render.Table]size {
	all := make(map[render.Table]size)
	for _, table := range render.Tables {
		if now, ok := s.tool.TableSize(table); ok {
			all[table] = now
		}
	}
	return all
}

// read records a successful Read after the sizes before were measured. The Read has seen all earlier
// changes; for later ones the next look finds another size.
func (s *sizes) read(before map[render.Table]size) { s.known, s.touched = before, false }

// wrote records that a batch was written since the last look. If the number of entries that the batch
// adds to a table is certain, any other number means that another program changed the table, too.
func (s *sizes) wrote(batch *dataplane.Batch, receipt *dataplane.Receipt) {
	growth, vague := growthOf(batch, receipt)
	for table, before := range s.known {
		now, ok := s.tool.TableSize(table)
		if !ok {
			continue
		}
		fresh := before == size{} // the kernel has added the table's own entries
		if !vague[table] && !fresh && int64(now.entries) != int64(before.entries)+growth[table] {
			s.touched = true
		}
		s.known[table] = now
	}
}

// growthOf returns how many entries a batch added to each table, and the tables for which that number
// is not certain.
func growthOf(
	batch *dataplane.Batch, receipt *dataplane.Receipt,
) (growth map[render.Table]int64, vague map[render.Table]bool) {
	growth, vague = make(map[render.Table]int64), make(map[render.Table]bool)
	for i := range batch.Changes {
		c := &batch.Changes[i]
		now, known := c.After, receipt.Outcome == dataplane.Landed
		if !known {
			now, known = receipt.Certain[c.ID]
		}
		name, _, isHook := strings.Cut(c.ID.Container, "/")
		table, target := render.Table(name), c.ID.Name
		if isHook {
			target = rules.TargetOf(target)
		}
		if !known || c.Unsure || render.IsShared(table, target) {
			vague[table] = true
			continue
		}
		growth[table] += entriesOf(now, isHook) - entriesOf(c.Before, isHook)
	}
	return growth, vague
}

// entriesOf counts the entries of a legacy table that an object takes: one for a rule, and two
// more for a chain.
func entriesOf(o *dataplane.Object, isHook bool) int64 {
	switch {
	case o == nil:
		return 0
	case isHook:
		return 1
	default:
		return 2 + int64(ruleCount(o))
	}
}

const (
	// sizesInterval is the pause between looks at the sizes, which take microseconds.
	sizesInterval = time.Second
	// readPause is the pause between two reads for changes by other programs, for each entry of the
	// tables: ten times the time to read one. Sizes do not show whose chains changed, so if other
	// programs write all the time, each look would cause a read. The pause is computed and not
	// measured, because under load a read takes long.
	readPause = 50 * time.Microsecond
)

// pause returns the pause between two reads for changes by other programs.
func (s *sizes) pause() (pause time.Duration) {
	for _, known := range s.known {
		pause += time.Duration(known.entries) * readPause
	}
	return pause
}

// watchSizes checks the sizes of the tables.
func (w *Writer) watchSizes(ctx context.Context, changed func(by dataplane.ForeignProcess)) error {
	var reported time.Time
	return w.every(ctx, sizesInterval, func() {
		w.sizes.look()
		if !w.sizes.touched || time.Since(reported) < w.sizes.pause() {
			return
		}
		w.sizes.touched, reported = false, time.Now()
		changed(dataplane.ForeignProcess{})
	})
}

// tableInfo is struct ipt_getinfo and struct ip6t_getinfo, which have the same layout
// (include/uapi/linux/netfilter_ipv4/ip_tables.h and netfilter_ipv6/ip6_tables.h).
type tableInfo struct {
	name       [32]byte
	validHooks uint32
	hookEntry  [5]uint32
	underflow  [5]uint32
	entries    uint32
	size       uint32
}

// soGetInfo is IPT_SO_GET_INFO and IP6T_SO_GET_INFO: both families' base control number.
const soGetInfo = 64

// TableSize asks the kernel for the size of a legacy table, without taking the lock or copying a
// rule. A missing table has the size 0, and TableSize does not create it. TableSize returns false in
// the nft variant, which has no such call, and if the call fails.
func (e *Exec) TableSize(table render.Table) (size, bool) {
	if e.Variant() != Legacy {
		return size{}, false
	}
	if exists, err := legacyTableExists(e.family, table); err == nil && !exists {
		return size{}, true
	}
	info, err := readInfo(e.family, table)
	if err != nil {
		return size{}, false
	}
	return size{entries: info.entries, bytes: info.size}, true
}

// readInfo reads the tableInfo of an existing table.
func readInfo(family service.Family, table render.Table) (info tableInfo, err error) {
	copy(info.name[:], table)
	err = getOption(family, soGetInfo, unsafe.Pointer(&info), uint32(unsafe.Sizeof(info)))
	return info, err
}

// getOption calls getsockopt for legacy tables. The start of answer contains the request.
func getOption(family service.Family, option uintptr, answer unsafe.Pointer, length uint32) error {
	domain, level := unix.AF_INET, unix.IPPROTO_IP
	if family == service.IPv6 {
		domain, level = unix.AF_INET6, unix.IPPROTO_IPV6
	}
	// iptables uses a raw socket, for which a process needs NET_RAW. Any other socket works, too.
	socket, err := unix.Socket(domain, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(socket) // nothing was sent, nothing can be lost
	// x/sys has no getsockopt for options of unknown layout.
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(socket), uintptr(level), option,
		uintptr(answer), uintptr(unsafe.Pointer(&length)), 0)
	if errno != 0 {
		return errno
	}
	return nil
}
