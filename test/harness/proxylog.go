// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// BatchWritten is one write to the kernel, as Sluice reports it.
type BatchWritten struct {
	Domain  string `json:"domain"` // such as iptables-nft/IPv4 or nftables/IPv6
	Objects int    `json:"objects"`
	Bytes   int    `json:"bytes"`
}

// AuditDone is one comparison with the kernel, as Sluice reports it.
type AuditDone struct {
	Domain    string `json:"domain"`
	Equal     int    `json:"equal"`
	Missing   int    `json:"missing"`
	Different int    `json:"different"`
	Swept     int    `json:"swept"`
}

// ConfigRejected is a rejected configuration file, as Sluice reports it.
type ConfigRejected struct {
	Problem string `json:"err"`
}

// ProxyLog is what tests read from the log of one sluice process. Only this file depends on the
// words in that log.
type ProxyLog struct {
	Batches  []BatchWritten
	Audits   []AuditDone
	Rejected []ConfigRejected
	// Defects are lines that no test allows: races, panics and rejected batches.
	Defects []string
}

// Messages of the lines that count.
const (
	messageBatch    = "batch written"
	messageAudit    = "audit done"
	messageRejected = "rejected invalid configuration file; keeping the previous configuration"
	// messageFailed is a batch that did not land. No test writes anything the kernel should reject.
	messageFailed = "batch write failed; retrying"
)

// marks of what the Go runtime prints when something is broken.
var defectMarks = []string{"WARNING: DATA RACE", "panic: ", "fatal error: "}

func readProxyLog(path string) (ProxyLog, error) {
	file, err := os.Open(path)
	if err != nil {
		return ProxyLog{}, err
	}
	defer file.Close() // opened for reading
	log, err := parseProxyLog(file)
	if err != nil {
		return ProxyLog{}, fmt.Errorf("%s: %w", path, err)
	}
	return log, nil
}

// parseProxyLog reads JSON lines. It searches other lines (of the Go runtime, or unfinished ones)
// for defects only.
func parseProxyLog(r io.Reader) (ProxyLog, error) {
	var log ProxyLog
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Bytes()
		var head struct {
			Message string `json:"msg"`
		}
		if json.Unmarshal(line, &head) != nil {
			for _, mark := range defectMarks {
				if strings.HasPrefix(lines.Text(), mark) {
					log.Defects = append(log.Defects, lines.Text())
				}
			}
			continue
		}
		var err error
		switch head.Message {
		case messageBatch:
			log.Batches, err = appendParsed(log.Batches, line)
		case messageAudit:
			log.Audits, err = appendParsed(log.Audits, line)
		case messageRejected:
			log.Rejected, err = appendParsed(log.Rejected, line)
		case messageFailed:
			log.Defects = append(log.Defects, string(line))
		}
		if err != nil {
			return ProxyLog{}, err
		}
	}
	return log, lines.Err()
}

func appendParsed[T any](all []T, line []byte) ([]T, error) {
	var one T
	if err := json.Unmarshal(line, &one); err != nil {
		return nil, fmt.Errorf("line %q: %w", line, err)
	}
	return append(all, one), nil
}

// Families are the last parts of the names of domains. A dual-stack proxy has one domain of each.
var Families = []string{"IPv4", "IPv6"}

// listeners begins the names of domains whose objects are sockets of the process itself (for node
// ports on localhost, in nftables mode). They vanish with it.
const listeners = "localport/"

// Kernel returns the batches that were written to the kernel's rules.
func (l ProxyLog) Kernel() []BatchWritten {
	return slices.DeleteFunc(slices.Clone(l.Batches), func(b BatchWritten) bool { return strings.HasPrefix(b.Domain, listeners) })
}

// Audited returns the first audit of the domain of a mode and family, and whether there was one. In
// iptables mode the variant of the tools is between the two in its name.
func (l ProxyLog) Audited(mode Mode, family string) (AuditDone, bool) {
	for _, audit := range l.Audits {
		if strings.HasPrefix(audit.Domain, string(mode)) && strings.HasSuffix(audit.Domain, "/"+family) {
			return audit, true
		}
	}
	return AuditDone{}, false
}
