package config

import (
	"net"
	"strconv"
	"strings"

	"k8s.io/kube-proxy/config/v1alpha1"
	netutils "k8s.io/utils/net"
)

// checkAddresses checks what is an address, with or without a port, or a range of
// them.
func checkAddresses(c *Config, found *findings) {
	k := &c.KubeProxy
	if netutils.ParseIPSloppy(k.BindAddress) == nil {
		found.wrong("bindAddress", k.BindAddress, "an IP address")
	}
	if k.HealthzBindAddress != "" || !c.Sluice.Healthz.Disabled {
		checkHostPort("healthzBindAddress", k.HealthzBindAddress, found)
	}
	checkHostPort("metricsBindAddress", k.MetricsBindAddress, found)
	for i, text := range k.NodePortAddresses {
		field := element("nodePortAddresses", i)
		switch {
		case text == nodePortPrimary && len(k.NodePortAddresses) > 1:
			found.wrong(field, text, "either ranges or primary alone")
		case text == nodePortPrimary:
		default:
			checkRange(field, text, found)
		}
	}
}

func checkHostPort(field, address string, found *findings) {
	host, port, err := net.SplitHostPort(address)
	number, numberErr := strconv.Atoi(port)
	if err != nil || netutils.ParseIPSloppy(host) == nil || numberErr != nil || number < 1 || number > 65535 {
		found.wrong(field, address, "an IP address and a port from 1 to 65535, like 0.0.0.0:10256 or [::]:10256")
	}
}

func checkRanges(field string, ranges []string, found *findings) {
	for i, text := range ranges {
		checkRange(element(field, i), text, found)
	}
}

func checkRange(field, text string, found *findings) {
	if _, ok := parseRange(text); !ok {
		found.wrong(field, text, "a range like 192.168.0.0/24")
	}
}

// checkLocal checks how packets of local pods are recognised.
func checkLocal(k *v1alpha1.KubeProxyConfiguration, found *findings) {
	switch k.DetectLocalMode {
	case localNodeCIDR:
	case localClusterCIDR:
		checkClusterCIDR(k.ClusterCIDR, found)
	case localBridgeInterface:
		if k.DetectLocal.BridgeInterface == "" {
			found.wrong("detectLocal.bridgeInterface", "", "the bridge of the pods, which detect-local mode %s needs", k.DetectLocalMode)
		}
	case localInterfaceNamePrefix:
		if k.DetectLocal.InterfaceNamePrefix == "" {
			found.wrong("detectLocal.interfaceNamePrefix", "", "the prefix of the pods' interfaces, which detect-local mode %s needs", k.DetectLocalMode)
		}
	default:
		found.wrong("detectLocalMode", string(k.DetectLocalMode), "ClusterCIDR, NodeCIDR, BridgeInterface or InterfaceNamePrefix")
	}
}

func checkClusterCIDR(text string, found *findings) {
	if text == "" {
		return
	}
	parts := strings.Split(text, ",")
	for _, part := range parts {
		if _, ok := parseRange(part); !ok {
			found.wrong("clusterCIDR", part, "a range like 10.244.0.0/16, or one of each family separated by a comma")
			return
		}
	}
	if len(parts) > 2 || (len(parts) == 2 && familyOf(parts[0]) == familyOf(parts[1])) {
		found.wrong("clusterCIDR", text, "one range, or one of each family")
	}
}
