// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"reflect"
	"strings"
	"testing"
)

func TestParseProxyLog(t *testing.T) {
	got, err := parseProxyLog(strings.NewReader(strings.Join([]string{
		`{"level":"info","ts":"2026-01-01T00:00:00Z","msg":"audit done","domain":"iptables-nft/IPv4","equal":12,"missing":2,"different":0,"swept":1}`,
		`{"level":"info","msg":"batch written","domain":"iptables-nft/IPv4","objects":3,"bytes":812,"seconds":0.01}`,
		`{"level":"info","msg":"batch written","domain":"localport/IPv4","objects":2,"bytes":0}`,
		`{"level":"info","msg":"something else","domain":7}`,
		`{"level":"error","msg":"rejected invalid configuration file; keeping the previous configuration","err":"f:3: mode"}`,
		`WARNING: DATA RACE`,
		`goroutine 1 [running]:`,
		`panic: index out of range`,
		`{"level":"info","msg":"batch writ`,
	}, "\n")))
	if err != nil {
		t.Fatal(err)
	}
	want := ProxyLog{
		Batches:  []BatchWritten{{"iptables-nft/IPv4", 3, 812}, {"localport/IPv4", 2, 0}},
		Audits:   []AuditDone{{"iptables-nft/IPv4", 12, 2, 0, 1}},
		Rejected: []ConfigRejected{{"f:3: mode"}},
		Defects:  []string{"WARNING: DATA RACE", "panic: index out of range"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("parsed %+v, want %+v", got, want)
	}
	if kernel := got.Kernel(); !reflect.DeepEqual(kernel, want.Batches[:1]) {
		t.Errorf("of the kernel: %+v", kernel)
	}
	if audit, ok := got.Audited(IPTables, "IPv4"); !ok || audit.Equal != 12 {
		t.Errorf("audit of IPv4: %+v, %v", audit, ok)
	}
	if _, ok := got.Audited(IPTables, "IPv6"); ok {
		t.Error("an audit of IPv6 was found")
	}
	if _, ok := got.Audited(NFTables, "IPv4"); ok {
		t.Error("an audit in nftables mode was found")
	}
}

// TestParseProxyLog_RejectsOtherTypes: a field with another type is an error, and not read as zero writes.
func TestParseProxyLog_RejectsOtherTypes(t *testing.T) {
	_, err := parseProxyLog(strings.NewReader(`{"msg":"batch written","domain":"d","objects":"three"}`))
	if err == nil || !strings.Contains(err.Error(), "objects") {
		t.Errorf("a word for a number: %v", err)
	}
}
