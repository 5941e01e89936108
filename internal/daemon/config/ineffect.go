// SPDX-License-Identifier: Apache-2.0

package config

import (
	"k8s.io/kube-proxy/config/v1alpha1"
	"k8s.io/utils/ptr"

	"github.com/sluice-proxy/sluice/aggregator"
)

// everywhere are ranges that hold all addresses.
var everywhere = []string{"0.0.0.0/0", "::/0"}

// InEffect returns both documents with the effective values of the settings that depend on the mode, given the mode
// that serves and its pace. Loaded as a file, they have the same effect in this mode.
func (c *Config) InEffect(mode Mode, pace aggregator.Pace) (v1alpha1.KubeProxyConfiguration, SluiceConfiguration) {
	k, s := *c.KubeProxy.DeepCopy(), copied(&c.Sluice)
	bit, all := c.MasqueradeBit(), c.MasqueradeAll()
	configured := periodsOf(&k)
	k.Mode = mode
	serving := periodsOf(&k)
	serving.sync.Duration, serving.minSync.Duration = configured.sync.Duration, pace.MinInterval
	if mode == ModeNFTables {
		k.NFTables.MasqueradeBit, k.NFTables.MasqueradeAll = ptr.To(int32(bit)), all
		if len(k.NodePortAddresses) == 0 {
			k.NodePortAddresses = everywhere
		}
	}
	log := c.Log()
	s.Log = LogConfiguration{Level: log.Level, Format: log.Format}
	if c.Sluice.Log.Level == "" && log.OwnVerbosity >= DebugVerbosity {
		s.Log.Level = "debug"
	}
	s.NFTables.LocalhostNodePorts = ptr.To(mode == ModeNFTables && c.localhostByField())
	return k, s
}
