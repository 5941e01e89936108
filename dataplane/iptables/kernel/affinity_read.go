// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// recentLists has a file for each list of the match "recent" in this thread's namespace.
const recentLists = "/proc/thread-self/net/xt_recent"

// SeenRecently returns how long ago a list of the match "recent" last saw a client.
func SeenRecently(list string, client netip.Addr) (age time.Duration, known bool, err error) {
	file, err := os.Open(filepath.Join(recentLists, filepath.Base(list)))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, err
	}
	defer file.Close() // nothing was written
	now, err := readClock()
	if err != nil {
		return 0, false, err
	}
	return seenIn(file, client, now)
}

// seenIn reads the lines of a list, such as
//
//	src=10.0.0.1 ttl: 64 last_seen: 4296245811 oldest_pkt: 1 4296245811
func seenIn(lines io.Reader, client netip.Addr, now clock) (age time.Duration, known bool, err error) {
	scanner := bufio.NewScanner(lines)
	for scanner.Scan() {
		text, found := strings.CutPrefix(scanner.Text(), "src=")
		words := strings.Fields(text)
		if !found || len(words) < 5 || words[3] != "last_seen:" {
			continue
		}
		if addr, err := netip.ParseAddr(words[0]); err != nil || addr != client {
			continue
		}
		ticks, err := strconv.ParseUint(words[4], 10, 64)
		if err != nil {
			return 0, false, fmt.Errorf("list of clients: line %q: %w", scanner.Text(), err)
		}
		return now.since(ticks), true, nil
	}
	return 0, false, scanner.Err()
}

// clock is the kernel's clock at one moment: the time since boot, and the length of a tick.
type clock struct{ uptime, tick time.Duration }

func readClock() (clock, error) {
	var now, tick unix.Timespec
	// The coarse clock advances by whole ticks.
	err := errors.Join(unix.ClockGettime(unix.CLOCK_MONOTONIC, &now), unix.ClockGetres(unix.CLOCK_MONOTONIC_COARSE, &tick))
	if err == nil && tick.Nano() <= 0 {
		err = errors.New("the kernel does not report the length of its tick")
	}
	return clock{time.Duration(now.Nano()), time.Duration(tick.Nano())}, err
}

// since returns the age of a time that the kernel prints in ticks. At boot, the ticks start 300 s
// below 2^32 (INITIAL_JIFFIES).
func (c clock) since(ticks uint64) time.Duration {
	const before = 300 * time.Second
	first := uint64(math.MaxUint32) + 1 - uint64(before/c.tick)
	return max(0, c.uptime-time.Duration(ticks-first)*c.tick)
}
