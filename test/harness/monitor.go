// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/test/netnstest"
	"github.com/sluice-proxy/sluice/test/testenv"
)

// monitorBytesMax is how much may wait to be read. Tests write far less.
const monitorBytesMax = 16 << 20

// Monitor records every change of a host's nf_tables by any program, as the kernel announces it. It
// sees writes that leave everything as it was, such as an element that was removed and added again,
// and names the program. Its log is for people.
//
// The program nft has a monitor, too, but it forgets the maps of removed rules and does not report
// their elements (seen with 1.0.6).
type Monitor struct {
	host   *Host
	socket *nl.NetlinkSocket
	log    *os.File
	ended  sync.WaitGroup

	mu      sync.Mutex
	commits []Commit
	err     error // why it ended
}

// startMonitor opens the record.
func startMonitor(h *Host, log string) (*Monitor, error) {
	m := &Monitor{host: h}
	err := h.Do(func() error {
		var err error
		m.socket, err = nl.Subscribe(unix.NETLINK_NETFILTER, unix.NFNLGRP_NFTABLES)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("listen to nf_tables in netns %s: %w", h.Name(), err)
	}
	if err := m.socket.SetReceiveBufferSize(monitorBytesMax, true); err != nil {
		m.socket.Close()
		return nil, fmt.Errorf("listen to nf_tables in netns %s: %w", h.Name(), err)
	}
	if m.log, err = os.Create(log); err != nil {
		m.socket.Close()
		return nil, err
	}
	m.ended.Go(m.run)
	return m, nil
}

// Close ends the record.
func (m *Monitor) Close() error {
	m.socket.Close()
	m.ended.Wait()
	return m.log.Close()
}

func (m *Monitor) run() {
	var changes []string
	for {
		messages, _, err := m.socket.Receive()
		for _, message := range messages {
			if err != nil {
				break
			}
			changes, err = m.record(message, changes)
		}
		if err != nil { // ENOBUFS, for one, when messages were lost
			m.mu.Lock()
			defer m.mu.Unlock()
			m.err = err
			return
		}
	}
}

// record adds a message to the changes. If the message announces a new generation, record completes
// the commit.
func (m *Monitor) record(message syscall.NetlinkMessage, changes []string) ([]string, error) {
	more, err := spellChanges(message)
	if err != nil {
		return nil, err
	}
	changes = append(changes, more...)
	if message.Header.Type != unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_NEWGEN {
		return changes, nil
	}
	attributes, err := netnstest.Attributes(message.Data[nl.SizeofNfgenmsg:])
	if err != nil {
		return nil, err
	}
	number := attributes[unix.NFTA_GEN_ID]
	if len(number) != 4 {
		return nil, errors.New("a generation without a number")
	}
	commit := Commit{binary.BigEndian.Uint32(number), nl.BytesToString(attributes[unix.NFTA_GEN_PROC_NAME]), changes}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.commits = append(m.commits, commit)
	_, err = fmt.Fprintf(m.log, "%s %v\n", time.Now().Format("15:04:05.000"), commit)
	return nil, err
}

// Commits returns what was written since the generation, oldest first. It waits until everything
// that the kernel has announced so far was read.
func (m *Monitor) Commits(since uint32) ([]Commit, error) {
	now, err := Generation(m.host)
	if err != nil {
		return nil, err
	}
	for start := time.Now(); ; time.Sleep(time.Millisecond) {
		commits, err := m.between(since, now)
		if err != nil || len(commits) == int(now-since) {
			return commits, err
		}
		if time.Since(start) > testenv.Patience {
			return nil, fmt.Errorf("nf_tables in netns %s announced %d commits between generations %d and %d", m.host.Name(), len(commits), since, now)
		}
	}
}

// between returns the commits after one generation, up to another.
func (m *Monitor) between(since, now uint32) ([]Commit, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err != nil {
		return nil, fmt.Errorf("listen to nf_tables in netns %s: %w", m.host.Name(), m.err)
	}
	var kept []Commit
	for _, commit := range m.commits {
		if commit.Generation > since && commit.Generation <= now {
			kept = append(kept, commit)
		}
	}
	return kept, nil
}

// Commit is one transaction of nf_tables that a [Monitor] saw.
type Commit struct {
	// Generation is the kernel's number of it.
	Generation uint32
	// Program is the first 15 characters of the name of the program that wrote it.
	Program string
	// Changes are a verb, a kind of object and where it is, such as "add rule ip nat OUTPUT". An
	// element is followed by its key in hexadecimal, and by its comment if it has one: "delete
	// element ip kube-proxy frontends ac1e0005 06000000 00500000 default/web:tcp".
	Changes []string
}

// Tables returns what was written to, each once, such as "ip kube-proxy".
func (c Commit) Tables() []string {
	var tables []string
	for _, change := range c.Changes {
		words := strings.Fields(change)
		tables = append(tables, words[2]+" "+words[3])
	}
	slices.Sort(tables)
	return slices.Compact(tables)
}

func (c Commit) String() string {
	return fmt.Sprintf("generation %d by %s:\n\t%s", c.Generation, c.Program, strings.Join(c.Changes, "\n\t"))
}

// Changes returns the changes of all commits that the expression matches.
func Changes(commits []Commit, matching *regexp.Regexp) []string {
	var found []string
	for _, commit := range commits {
		for _, change := range commit.Changes {
			if matching.MatchString(change) {
				found = append(found, change)
			}
		}
	}
	return found
}

// Generation returns the number that the kernel's nf_tables raises with every committed change in a
// namespace. Two equal numbers prove that nothing at all was written in between, through nftables,
// through iptables (in its nf_tables variant, the usual one) or otherwise. The older
// iptables-legacy does not count here; a test notices, because the number stays the same when it
// must grow.
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
		attributes, err := netnstest.Attributes(reply[nl.SizeofNfgenmsg:])
		if err != nil {
			return 0, err
		}
		if number := attributes[unix.NFTA_GEN_ID]; len(number) == 4 {
			return binary.BigEndian.Uint32(number), nil
		}
	}
	return 0, errors.New("the kernel's answer holds no number")
}
