// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
)

const (
	containerdSocket = "/run/containerd/containerd.sock"
	containerdFile   = stateDir + "/containerd.toml"
	kubeletFile      = stateDir + "/kubelet.yaml"
	networkDir       = stateDir + "/cni"
)

// containerdConfig is Debian's, but for the places, and for an OOM score that may not be set: that
// takes a capability that test machines do not always give.
const containerdConfig = `version = 2
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "PAUSE_IMAGE"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "` + pluginDir + `"
    conf_dir = "` + networkDir + `"
`

// kubeletConfig evicts nothing and asks nobody: the machine's disk and memory are not the test's.
// Whoever has a certificate of the cluster's authority, as the API server has, may do everything.
const kubeletConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
containerRuntimeEndpoint: unix://` + containerdSocket + `
cgroupDriver: cgroupfs
failCgroupV1: false
failSwapOn: false
authentication: {anonymous: {enabled: false}, webhook: {enabled: false}, x509: {clientCAFile: CLIENT_CA}}
authorization: {mode: AlwaysAllow}
clusterDNS: [CLUSTER_DNS]
clusterDomain: cluster.local
resolvConf: ""
evictionHard: {memory.available: "0%", nodefs.available: "0%", nodefs.inodesFree: "0%", imagefs.available: "0%"}
imageGCHighThresholdPercent: 100
localStorageCapacityIsolation: false
`

// writeFiles writes the configuration of the daemons and of the pods' network.
func (c config) writeFiles() error {
	network, err := json.Marshal(c.network())
	if err != nil {
		return err
	}
	for path, content := range map[string]string{
		containerdFile:                   strings.Replace(containerdConfig, "PAUSE_IMAGE", c.pauseImage, 1),
		kubeletFile:                      strings.NewReplacer("CLIENT_CA", c.clientCA, "CLUSTER_DNS", c.clusterDNS).Replace(kubeletConfig),
		networkDir + "/10-pods.conflist": string(network),
	} {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// network joins each pod to the node by a separate cable, routes between them, and maps host ports.
func (c config) network() any {
	type object map[string]any
	var ranges, routes []any
	for _, prefix := range c.podCIDRs {
		ranges = append(ranges, []any{object{"subnet": prefix.String()}})
		everything := "0.0.0.0/0"
		if prefix.Addr().Is6() {
			everything = "::/0"
		}
		routes = append(routes, object{"dst": everything})
	}
	return object{"cniVersion": "0.4.0", "name": "pods", "plugins": []any{object{
		"type": "ptp",
		"ipam": object{"type": "host-local", "ranges": ranges, "routes": routes, "dataDir": stateDir + "/addresses"},
	}, object{"type": "portmap", "capabilities": object{"portMappings": true}}}}
}

func (c config) kubeletArguments() []string {
	var addresses []string
	for _, addr := range c.addresses {
		addresses = append(addresses, addr.String())
	}
	return []string{
		"--config=" + kubeletFile,
		"--kubeconfig=" + c.kubeconfig,
		"--hostname-override=" + c.name,
		"--node-ip=" + strings.Join(addresses, ","),
		"--v=2",
	}
}
