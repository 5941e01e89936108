package config

// flagNFTablesLocalhost names a flag whose default depends on the mode.
const flagNFTablesLocalhost = "sluice-nftables-localhost-nodeports"

// bindNode adds the flags about this node.
func (f *Flags) bindNode() {
	k := &f.kubeProxy
	f.bindMode()
	f.text(&f.hostname, "hostname-override", "hostnameOverride", "name of this node as the API knows it; empty means the host's name")
	f.text(&f.sluice.IPTables.Variant, "sluice-iptables-variant", sluicePrefix+"iptables.variant", "iptables programs: auto, legacy or nft")
	f.number(k.IPTables.MasqueradeBit, "iptables-masquerade-bit", "iptables.masqueradeBit",
		"bit of the packet mark that asks for source NAT, 0 to 31; mode nftables has its own, in the file")
	f.flag(&f.modal.masqueradeAll, "masquerade-all", "masqueradeAll", "source NAT for all ClusterIP traffic")
	f.flag(k.IPTables.LocalhostNodePorts, "iptables-localhost-nodeports", "iptables.localhostNodePorts",
		"let node ports answer on 127.0.0.1 (IPv4, mode iptables)")
	f.flag(f.sluice.NFTables.LocalhostNodePorts, flagNFTablesLocalhost, sluicePrefix+"nftables.localhostNodePorts",
		"let node ports answer on 127.0.0.1 and ::1 in mode nftables; if not given, only where no --proxy-mode is")
	f.text((*string)(&k.DetectLocalMode), "detect-local-mode", "detectLocalMode",
		"how packets of local pods are recognised: ClusterCIDR (default), NodeCIDR, BridgeInterface or InterfaceNamePrefix")
	f.text(&k.DetectLocal.BridgeInterface, "pod-bridge-interface", "detectLocal.bridgeInterface", "bridge of the pods, for BridgeInterface")
	f.text(&k.DetectLocal.InterfaceNamePrefix, "pod-interface-name-prefix", "detectLocal.interfaceNamePrefix",
		"prefix of the pods' interfaces, for InterfaceNamePrefix")
	f.text(&k.ClusterCIDR, "cluster-cidr", "clusterCIDR", "range of pod addresses, or a dual-stack pair separated by a comma")
	f.texts(&k.NodePortAddresses, "nodeport-addresses", "nodePortAddresses",
		"ranges of host addresses on which node ports answer, or primary for the node's own; empty means all, but with --proxy-mode nftables the node's own")
}

// bindMode adds the flag that chooses the kernel backend.
func (f *Flags) bindMode() {
	f.text((*string)(&f.kubeProxy.Mode), "proxy-mode", "mode",
		"kernel backend: nftables, iptables or ipvs; empty means nftables where the kernel can, else iptables")
}

// bindLog adds Sluice's own flags about logs.
func (f *Flags) bindLog() {
	f.text(&f.sluice.Log.Level, "log-level", sluicePrefix+"log.level", "how much to log: debug, info, warn or error")
	f.text(&f.sluice.Log.Format, "log-format", sluicePrefix+"log.format", "how to log to standard error: console, json, or auto (console on a terminal)")
	f.without("log-level", "info")
	if f.sluice.Log.Format == "" {
		f.without("log-format", "console")
	}
}
