// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"slices"

	"github.com/sluice-proxy/sluice/service"
)

// Digest hashes the known state of a Service: its addresses, ports and endpoints, with their conditions. A node and a
// client with equal state get equal digests. It leaves out what depends on the node and its configuration.
func Digest(known service.Snapshot) string {
	sum := sha256.New()
	if s := known.Spec; s != nil {
		type port struct {
			Name     string
			Protocol service.Protocol
			Port     uint16
			NodePort uint16
		}
		ports := make([]port, 0, len(s.Ports))
		for i := range s.Ports {
			ports = append(ports, port{s.Ports[i].Name, s.Ports[i].Protocol, s.Ports[i].Port, s.Ports[i].NodePort})
		}
		slices.SortFunc(ports, func(a, b port) int { return int(a.Port) - int(b.Port) })
		_, _ = fmt.Fprintln(sum, s.ClusterIPs, s.InternalLocal, s.ExternalLocal, s.AffinitySeconds, ports) // a hash takes all
	}
	all := slices.Clone(known.Slices)
	slices.SortFunc(all, func(a, b *service.Slice) int { return slices.Compare([]byte(a.Name), []byte(b.Name)) })
	for _, slice := range all {
		if slice.Observed == nil {
			addSlice(sum, slice)
		}
	}
	return hex.EncodeToString(sum.Sum(nil)[:8])
}

func addSlice(sum hash.Hash, s *service.Slice) {
	_, _ = fmt.Fprintln(sum, s.Name, s.Ports)
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		_, _ = fmt.Fprintln(sum, e.Addr, e.Ready, e.Serving, e.Terminating)
	}
}
