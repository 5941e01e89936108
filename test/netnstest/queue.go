// SPDX-License-Identifier: Apache-2.0

package netnstest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/internal/host/netns"
)

// The messages and attributes of nfnetlink_queue (linux/netfilter/nfnetlink_queue.h).
const (
	queuePacket    = 0 // NFQNL_MSG_PACKET
	queueVerdict   = 1 // NFQNL_MSG_VERDICT
	queueConfigure = 2 // NFQNL_MSG_CONFIG

	queueCommand    = 1 // NFQA_CFG_CMD
	queueParameters = 2 // NFQA_CFG_PARAMS
	queueLength     = 3 // NFQA_CFG_QUEUE_MAXLEN
	queueHeader     = 1 // NFQA_PACKET_HDR
	queueDecision   = 2 // NFQA_VERDICT_HDR

	// queueMax bounds the packets in a queue. The kernel drops more.
	queueMax = 1 << 12
)

// Queue holds the first packets of UDP flows that a host forwards, as a network policy engine in user
// space does. Prerouting rules see a packet before that, and conntrack stores its flow after it.
type Queue struct {
	file *os.File
	held time.Duration
	ids  chan queued
}

type queued struct {
	id    uint32
	until time.Time
}

// Hold makes a namespace hold such packets for a time, until the queue is closed. The rules are in
// the legacy tables, so a flush of nftables leaves them in place.
func Hold(n *netns.Namespace, held time.Duration) (*Queue, error) {
	q := &Queue{held: held, ids: make(chan queued, queueMax)}
	err := n.Do(func() error {
		fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_NETFILTER)
		if err != nil {
			return err
		}
		q.file = os.NewFile(uintptr(fd), "queue")
		return unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
	})
	if err == nil {
		err = errors.Join(
			q.send(queueConfigure, queueCommand, []byte{1, 0, 0, 0}),       // NFQNL_CFG_CMD_BIND
			q.send(queueConfigure, queueParameters, []byte{0, 0, 0, 0, 1}), // NFQNL_COPY_META
			q.send(queueConfigure, queueLength, binary.BigEndian.AppendUint32(nil, queueMax)))
	}
	for _, tool := range []string{"iptables-legacy", "ip6tables-legacy"} {
		if err == nil {
			err = Run(n, exec.Command(tool, "-A", "FORWARD", "-p", "udp", "-m", "conntrack", "--ctstate", "NEW", "-j", "NFQUEUE", "--queue-num", "0"))
		}
	}
	if err != nil {
		return nil, fmt.Errorf("netns %s: hold packets: %w", n.Name(), errors.Join(err, q.file.Close()))
	}
	go q.receive()
	go q.release()
	return q, nil
}

// Close drops the packets that are held, and all that come later.
func (q *Queue) Close() error { return q.file.Close() }

// send sends a message with one attribute about queue 0. The kernel does not answer.
func (q *Queue) send(kind, attr int, data []byte) error {
	request := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_QUEUE<<8|kind, 0)
	request.AddData(&nl.Nfgenmsg{NfgenFamily: unix.AF_UNSPEC, Version: nl.NFNETLINK_V0})
	request.AddData(nl.NewRtAttr(attr, data))
	_, err := q.file.Write(request.Serialize())
	return err
}

// receive takes packets until the queue is closed.
func (q *Queue) receive() {
	defer close(q.ids)
	buffer := make([]byte, 1<<16)
	for {
		n, err := q.file.Read(buffer)
		if errors.Is(err, os.ErrClosed) {
			return
		}
		messages, err := syscall.ParseNetlinkMessage(buffer[:max(n, 0)])
		if err != nil {
			continue
		}
		for _, message := range messages {
			if message.Header.Type != unix.NFNL_SUBSYS_QUEUE<<8|queuePacket || len(message.Data) < nl.SizeofNfgenmsg {
				continue
			}
			attributes, err := Attributes(message.Data[nl.SizeofNfgenmsg:])
			if header := attributes[queueHeader]; err == nil && len(header) >= 4 {
				q.ids <- queued{binary.BigEndian.Uint32(header), time.Now().Add(q.held)}
			}
		}
	}
}

// release lets each packet go on when its time is over.
func (q *Queue) release() {
	for packet := range q.ids {
		time.Sleep(time.Until(packet.until))
		decision := binary.BigEndian.AppendUint32(nil, 1) // NF_ACCEPT
		// The kernel may have dropped the packet meanwhile.
		_ = q.send(queueVerdict, queueDecision, binary.BigEndian.AppendUint32(decision, packet.id))
	}
}
