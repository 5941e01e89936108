package harness

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

const (
	// monitorMax bounds how long the kernel's messages may take to be read; milliseconds are usual.
	monitorMax = 10 * time.Second
	// monitorBytesMax is how much may wait to be read. Tests write far less.
	monitorBytesMax = 16 << 20
)

// Monitor keeps a record of every change that anybody makes to the nf_tables of a host, as the kernel tells
// it. It sees the writing of things that look the same afterwards, such as an element that was removed
// and added again, and says which program it was. Its log is for people.
//
// The program nft has a monitor, too, but that forgets the maps of which a rule was removed and keeps
// silent about their elements (seen with 1.0.6).
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

// record adds a message to the changes, which it ends and files if the message is about a new generation.
func (m *Monitor) record(message syscall.NetlinkMessage, changes []string) ([]string, error) {
	more, err := spellChanges(message)
	if err != nil {
		return nil, err
	}
	changes = append(changes, more...)
	if message.Header.Type != unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_NEWGEN {
		return changes, nil
	}
	attributes, err := attributesOf(message.Data[nl.SizeofNfgenmsg:])
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

// Commits returns what was written since the generation, oldest first. It waits until everything has been
// read that the kernel has to tell by now.
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
		if time.Since(start) > monitorMax {
			return nil, fmt.Errorf("nf_tables in netns %s told %d commits between generations %d and %d", m.host.Name(), len(commits), since, now)
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
