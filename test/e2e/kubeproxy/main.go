// SPDX-License-Identifier: Apache-2.0

// Command kubeproxy is the real kube-proxy of the release that the module names, built from the
// published module k8s.io/kubernetes: what Sluice takes a node over from, and hands it back to.
package main

import (
	"os"

	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register" // the JSON log format
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	"k8s.io/kubernetes/cmd/kube-proxy/app"
)

func main() { os.Exit(cli.Run(app.NewProxyCommand())) }
